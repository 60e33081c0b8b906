"""TextCompletionRequest -> Gemini's contents: pure functions, after the public reference of `generateContent`.

The format is the same for Google AI Studio and for Gemini on Vertex AI.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from tg_base.llm import call_arguments, find_budget, read_signature, set_fields
from tg_base.llm.gemini.options import GeminiOptions
from tg_schema import COMMON_FEATURES, ImagePart, Message, TextCompletionRequest, TextPart
from tg_schema.conversation import Part, ReasoningPart
from tg_schema.errors import BadRequest
from tg_schema.features import Feature
from tg_schema.text_completion import Effort, Reasoning

FEATURES: frozenset[Feature] = COMMON_FEATURES | {"reasoning", "allowed_tools", "strict_tools", "count_tokens"}
"""The features that this API has a field for."""

OWN_CALL_PREFIX = "call-"
"""Prefix of the ids that we generate for calls without one; they are never sent to Gemini."""

ORIGIN = "gemini"
"""The origin of thought signatures, on calls and on text."""

_NO_SIGNATURE = "skip_thought_signature_validator"
"""The reference's placeholder for a call whose thought signature is unknown."""


def to_wire(request: TextCompletionRequest, options: GeminiOptions) -> dict[str, Any]:
    """The body of `POST .../models/{model}:streamGenerateContent`.

    Args:
        request: the request.
        options: have the values for fields that the request does not set.

    Raises:
        BadRequest: this API cannot express the request, or a tool's result belongs to no call.
    """
    system = request.system_text
    functions = [
        {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
        for tool in request.tools
    ]
    return set_fields(
        contents=_contents(request.turns),
        systemInstruction={"parts": [{"text": system}]} if system else None,
        tools=[{"functionDeclarations": functions}] if functions else None,
        toolConfig=_tool_config(request) if request.tools else None,
        generationConfig=_generation(request, options),
    )


def _contents(turns: Sequence[Message]) -> list[dict[str, Any]]:
    """Merge consecutive turns of one role: the API wants all results of a turn's calls in the next turn."""
    spoken = groupby(_spoken(turns), key=lambda turn: turn[0])
    return [{"parts": [part for _, parts in group for part in parts], "role": role} for role, group in spoken]


def _spoken(turns: Sequence[Message]) -> Iterator[tuple[str, tuple[dict[str, Any], ...]]]:
    names: dict[str, str] = {}
    for turn in turns:
        shown = tuple(part for parts in turn.parts for part in _convert_part(parts))
        if turn.role == "tool":
            # The text is in the result, which holds nothing else; images are next to it.
            yield "user", (_result(turn, names), *(part for part in shown if "text" not in part))
        elif turn.role == "assistant":
            names.update((call.id, call.name) for call in turn.tool_calls)
            parts = (*shown, *_calls(turn))
            if parts:
                yield "model", parts
        elif shown:
            yield "user", shown


def _convert_part(part: Part) -> Iterator[dict[str, Any]]:
    """A thought goes back as the signature alone, on a part of its own without text, as Gemini streams it."""
    if isinstance(part, TextPart):
        yield {"text": part.text}
    elif isinstance(part, ImagePart) and part.url:
        yield {"fileData": {"mimeType": part.media_type, "fileUri": part.url}}
    elif isinstance(part, ImagePart):
        yield {"inlineData": {"mimeType": part.media_type, "data": part.data or ""}}
    elif isinstance(part, ReasoningPart) and (signature := read_signature(part.signature, ORIGIN)):
        yield {"text": "", "thoughtSignature": signature}


def _calls(turn: Message) -> Iterator[dict[str, Any]]:
    """Only the first of parallel calls needs a signature."""
    needed: str | None = _NO_SIGNATURE
    for call in turn.tool_calls:
        made = {"name": call.name, "args": call_arguments(call.arguments), **_their_id(call.id)}
        signature = read_signature(call.signature, ORIGIN) or needed
        yield set_fields(functionCall=made, thoughtSignature=signature)
        needed = None


def _result(turn: Message, names: dict[str, str]) -> dict[str, Any]:
    # Gemini matches a result to its call by the function's name, which our records keep only with the call.
    name = names.get(turn.tool_call_id or "") or turn.name
    if not name:
        raise BadRequest("messages: a tool's message must have the tool_call_id of a call in an assistant's message")
    result = {"error" if turn.error else "output": turn.text}
    return {"functionResponse": {"name": name, "response": result, **_their_id(turn.tool_call_id)}}


def _their_id(call_id: str | None) -> dict[str, str]:
    return {} if not call_id or call_id.startswith(OWN_CALL_PREFIX) else {"id": call_id}


def _tool_config(request: TextCompletionRequest) -> dict[str, Any] | None:
    """By the reference, "VALIDATED" lets the model answer too, and holds calls to their schemas and allowed names."""
    choice, allowed = request.tool_choice or None, request.allowed_tools
    validated = bool(allowed) or any(tool.strict for tool in request.tools)
    if choice is None and not validated:
        return None
    if choice in {None, "auto"}:
        mode, names = ("VALIDATED", allowed) if validated else ("AUTO", ())
    elif choice == "none":
        mode, names = "NONE", ()
    else:
        mode, names = "ANY", allowed if choice == "required" else (choice or "",)
    return {"functionCallingConfig": set_fields(mode=mode, allowedFunctionNames=names)}


def _generation(request: TextCompletionRequest, options: GeminiOptions) -> dict[str, Any]:
    sampling = options.sampling(request)
    as_json = request.schema is not None or request.response_format == "json"
    return set_fields(
        temperature=sampling.temperature,
        topP=sampling.top_p,
        topK=sampling.top_k,
        maxOutputTokens=sampling.max_tokens,
        stopSequences=tuple(sampling.stop),
        seed=sampling.seed,
        presencePenalty=sampling.presence_penalty,
        frequencyPenalty=sampling.frequency_penalty,
        responseLogprobs=None if sampling.logprobs is None else True,
        logprobs=sampling.logprobs or None,
        responseMimeType="application/json" if as_json else None,
        responseJsonSchema=request.schema,
        thinkingConfig=_thinking(request.reasoning, options),
    )


_LEVELS: dict[Effort, str] = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM"}
"""All other efforts are "HIGH"."""


def _thinking(asked: Reasoning | None, options: GeminiOptions) -> dict[str, Any] | None:
    """The request's thinking, else the configuration's. The API takes a budget or a level: a request's budget wins."""
    if asked is None:
        return set_fields(includeThoughts=options.thoughts or None, thinkingBudget=options.thinking_budget) or None
    if asked.effort == "none" or asked.budget == 0:
        return {"thinkingBudget": 0}
    if asked.budget is not None or asked.effort is None:
        return set_fields(includeThoughts=True, thinkingBudget=asked.budget)
    if options.effort_by == "budget":
        return {"includeThoughts": True, "thinkingBudget": find_budget(asked.effort)}
    return {"includeThoughts": True, "thinkingLevel": _LEVELS.get(asked.effort, "HIGH")}
