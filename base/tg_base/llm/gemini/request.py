"""TextCompletionRequest -> Gemini's contents: pure functions, after the public reference of `generateContent`.

The format is the same for Google AI Studio and for Gemini on Vertex AI.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from tg_base.llm import call_arguments, find_budget, read_signature
from tg_schema import COMMON_FEATURES, ImagePart, Message, Sampling, TextCompletionRequest, TextPart, Tool
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


class Defaults(msgspec.Struct, frozen=True):
    """The defaults for requests without these fields.

    Attributes:
        max_tokens: the limit of an answer's tokens.
        temperature: None = the provider's default.
        thoughts: request the thinking text.
        thinking_budget: maximum thinking tokens; None = the provider's default.
        effort_by_budget: tell an effort as a budget, for models without thinking levels.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    thoughts: bool = False
    thinking_budget: int | None = None
    effort_by_budget: bool = False


class _Blob(msgspec.Struct, frozen=True, rename="camel"):
    mime_type: str
    data: str


class _File(msgspec.Struct, frozen=True, rename="camel"):
    mime_type: str
    file_uri: str


class _Call(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    args: dict[str, Any]
    id: str | None = None


class _Result(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    response: dict[str, str]
    id: str | None = None


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    text: str | None = None
    inline_data: _Blob | None = None
    file_data: _File | None = None
    function_call: _Call | None = None
    function_response: _Result | None = None
    thought_signature: str | None = None


class _Content(msgspec.Struct, frozen=True, omit_defaults=True):
    parts: tuple[_Part, ...]
    role: str | None = None


class _Function(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    description: str
    parameters_json_schema: dict[str, Any]


class _Functions(msgspec.Struct, frozen=True, rename="camel"):
    function_declarations: tuple[_Function, ...]


class _Calling(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    mode: str
    allowed_function_names: tuple[str, ...] = ()


class _ToolConfig(msgspec.Struct, frozen=True, rename="camel"):
    function_calling_config: _Calling


class _Thinking(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    include_thoughts: bool | None = None
    thinking_budget: int | None = None
    thinking_level: str | None = None


class _Generation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_output_tokens: int | None = None
    stop_sequences: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_logprobs: bool | None = None
    logprobs: int | None = None
    response_mime_type: str | None = None
    response_json_schema: dict[str, Any] | None = None
    thinking_config: _Thinking | None = None


class GenerateRequest(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The body of `POST .../models/{model}:streamGenerateContent`."""

    contents: tuple[_Content, ...]
    system_instruction: _Content | None = None
    tools: tuple[_Functions, ...] = ()
    tool_config: _ToolConfig | None = None
    generation_config: _Generation = _Generation()


def to_wire(request: TextCompletionRequest, defaults: Defaults) -> GenerateRequest:
    """The body for a request.

    Args:
        request: the request.
        defaults: values for the fields that it does not set.

    Raises:
        BadRequest: this API cannot express the request, or a tool's result belongs to no call.
    """
    system = request.system_text
    return GenerateRequest(
        contents=_contents(request.turns),
        system_instruction=_Content((_Part(system),)) if system else None,
        tools=(_Functions(tuple(_function(tool) for tool in request.tools)),) if request.tools else (),
        tool_config=_tool_config(request) if request.tools else None,
        generation_config=_generation(request, request.sampling or Sampling(), defaults),
    )


def _contents(turns: Sequence[Message]) -> tuple[_Content, ...]:
    """Merge consecutive turns of one role: the API wants all results of a turn's calls in the next turn."""
    spoken = groupby(_spoken(turns), key=lambda turn: turn[0])
    return tuple(_Content(tuple(part for _, parts in group for part in parts), role) for role, group in spoken)


def _spoken(turns: Sequence[Message]) -> Iterator[tuple[str, tuple[_Part, ...]]]:
    names: dict[str, str] = {}
    for turn in turns:
        shown = tuple(part for parts in turn.parts for part in _convert_part(parts))
        if turn.role == "tool":
            # The text is in the result, which holds nothing else; images stand beside it.
            yield "user", (_result(turn, names), *(part for part in shown if part.text is None))
        elif turn.role == "assistant":
            names.update((call.id, call.name) for call in turn.tool_calls)
            parts = (*shown, *_calls(turn))
            if parts:
                yield "model", parts
        elif shown:
            yield "user", shown


def _convert_part(part: Part) -> Iterator[_Part]:
    """A thought goes back as the signature alone, on a part of its own without text, as Gemini streams it."""
    if isinstance(part, TextPart):
        yield _Part(part.text)
    elif isinstance(part, ImagePart) and part.url:
        yield _Part(file_data=_File(part.media_type, part.url))
    elif isinstance(part, ImagePart):
        yield _Part(inline_data=_Blob(part.media_type, part.data or ""))
    elif isinstance(part, ReasoningPart) and (signature := read_signature(part.signature, ORIGIN)):
        yield _Part("", thought_signature=signature)


def _calls(turn: Message) -> Iterator[_Part]:
    """Only the first of parallel calls needs a signature."""
    needed: str | None = _NO_SIGNATURE
    for call in turn.tool_calls:
        wire = _Call(call.name, call_arguments(call.arguments), _their_id(call.id))
        yield _Part(function_call=wire, thought_signature=read_signature(call.signature, ORIGIN) or needed)
        needed = None


def _result(turn: Message, names: dict[str, str]) -> _Part:
    # Gemini matches a result to its call by the function's name, which our records keep only with the call.
    name = names.get(turn.tool_call_id or "") or turn.name
    if not name:
        raise BadRequest("messages: a tool's message must have the tool_call_id of a call in an assistant's message")
    result = {"error" if turn.error else "output": turn.text}
    return _Part(function_response=_Result(name, result, _their_id(turn.tool_call_id)))


def _their_id(call_id: str | None) -> str | None:
    return None if not call_id or call_id.startswith(OWN_CALL_PREFIX) else call_id


def _function(tool: Tool) -> _Function:
    return _Function(tool.name, tool.description, tool.parameters)


def _tool_config(request: TextCompletionRequest) -> _ToolConfig | None:
    """By the reference, "VALIDATED" lets the model answer too, and holds calls to their schemas and allowed names."""
    choice, allowed = request.tool_choice or None, request.allowed_tools
    validated = bool(allowed) or any(tool.strict for tool in request.tools)
    if choice is None and not validated:
        return None
    if choice in {None, "auto"}:
        return _ToolConfig(_Calling("VALIDATED", allowed) if validated else _Calling("AUTO"))
    if choice == "none":
        return _ToolConfig(_Calling("NONE"))
    return _ToolConfig(_Calling("ANY", allowed if choice == "required" else (choice or "",)))


def _generation(request: TextCompletionRequest, sampling: Sampling, defaults: Defaults) -> _Generation:
    as_json = request.schema is not None or request.response_format == "json"
    return _Generation(
        temperature=defaults.temperature if sampling.temperature is None else sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_output_tokens=defaults.max_tokens if sampling.max_tokens is None else sampling.max_tokens,
        stop_sequences=tuple(sampling.stop),
        seed=sampling.seed,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        response_logprobs=None if sampling.logprobs is None else True,
        logprobs=sampling.logprobs or None,
        response_mime_type="application/json" if as_json else None,
        response_json_schema=request.schema,
        thinking_config=_thinking(request.reasoning, defaults),
    )


_LEVELS: dict[Effort, str] = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM"}
"""The others are "HIGH"."""


def _thinking(asked: Reasoning | None, defaults: Defaults) -> _Thinking | None:
    """The request's thinking, else the configuration's. The API takes a budget or a level: a request's budget wins."""
    if asked is None:
        if not defaults.thoughts and defaults.thinking_budget is None:
            return None
        return _Thinking(defaults.thoughts or None, defaults.thinking_budget)
    if asked.effort == "none" or asked.budget == 0:
        return _Thinking(thinking_budget=0)
    if asked.budget is not None or asked.effort is None:
        return _Thinking(True, asked.budget)
    if defaults.effort_by_budget:
        return _Thinking(True, find_budget(asked.effort))
    return _Thinking(True, thinking_level=_LEVELS.get(asked.effort, "HIGH"))
