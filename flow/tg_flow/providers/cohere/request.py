"""TextCompletionRequest -> the body of Cohere's `POST /v2/chat`, after its public API reference ("Chat", v2)."""

from collections.abc import Iterable
from typing import Any, TypeGuard

from tg_base.llm import find_budget, read_signature, set_fields
from tg_schema import ImagePart, Message, Sampling, TextCompletionRequest, TextPart, Tool
from tg_schema.conversation import Part, ReasoningPart
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Reasoning

ORIGIN = "cohere"
"""The origin in signatures of Cohere's thinking. Such a signature has no value."""


def to_wire(
    request: TextCompletionRequest, model: str, sampling: Sampling, *, thinking: bool | int | None
) -> dict[str, Any]:
    """The body for a request.

    Raises:
        BadRequest: this API cannot express the request; the message says why.
    """
    tools, choice = _choice(request)
    return set_fields(
        model=model,
        messages=[*_messages(request)],
        stream=True,
        tools=tools,
        tool_choice=choice,
        response_format=_response_format(request),
        # Cohere has a single switch for all tools of a request.
        strict_tools=any(tool.strict for tool in request.tools) or None,
        thinking=_thinking(thinking) if request.reasoning is None else _reasoning(request.reasoning),
        priority=request.priority,
        temperature=sampling.temperature,
        p=sampling.top_p,
        k=sampling.top_k,
        max_tokens=sampling.max_tokens,
        stop_sequences=tuple(sampling.stop),
        seed=sampling.seed,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
    )


def _choice(request: TextCompletionRequest) -> tuple[tuple[dict[str, Any], ...], str | None]:
    """The offered tools, and the choice. Cohere's choice cannot name a tool, so a forced tool is offered alone."""
    choice = request.tool_choice or "auto"
    named = tuple(tool for tool in request.tools if tool.name == choice)
    if choice in {"auto", "none", "required"} or not named:
        tool_choice = {"none": "NONE", "required": "REQUIRED"}.get(choice) if request.tools else None
        return tuple(_tool(tool) for tool in request.tools), tool_choice
    return tuple(_tool(tool) for tool in named), "REQUIRED"


def _tool(tool: Tool) -> dict[str, Any]:
    function = set_fields(name=tool.name, parameters=tool.parameters, description=tool.description)
    return {"type": "function", "function": function}


def _messages(request: TextCompletionRequest) -> Iterable[dict[str, Any]]:
    if request.system_text:
        yield {"role": "system", "content": request.system_text}
    for turn in request.turns:
        yield _message(turn)


def _message(turn: Message) -> dict[str, Any]:
    if turn.images and turn.role != "user":
        raise BadRequest(f"messages: this provider takes images from the user only, not in a turn of the {turn.role}")
    if turn.images:
        return {"role": "user", "content": [_part(part) for part in turn.content_parts]}
    thought = "".join(part.text for part in turn.parts if _is_ours(part))
    thoughts = ({"type": "thinking", "thinking": thought},) if thought else ()
    if turn.tool_calls:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.tool_calls
        ]
        return set_fields(role="assistant", content=thoughts, tool_plan=turn.text, tool_calls=calls)
    if thoughts:
        text = ({"type": "text", "text": turn.text},) if turn.text else ()
        return {"role": "assistant", "content": (*thoughts, *text)}
    result = {"tool_call_id": turn.tool_call_id} if turn.role == "tool" else {}
    return {"role": turn.role, "content": turn.text, **result}


def _part(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": part.url or f"data:{part.media_type};base64,{part.data}"}}


def _response_format(request: TextCompletionRequest) -> dict[str, Any] | None:
    if request.schema is not None:
        return {"type": "json_object", "json_schema": request.schema}
    return {"type": "json_object"} if request.response_format == "json" else None


def _is_ours(part: Part) -> TypeGuard[ReasoningPart]:
    """Whether it is thinking that came from this API, which sends no proof of it."""
    return isinstance(part, ReasoningPart) and read_signature(part.signature, ORIGIN) is not None


def _reasoning(reasoning: Reasoning) -> dict[str, Any]:
    if reasoning.effort == "none" or reasoning.budget == 0:
        return {"type": "disabled"}
    budget = reasoning.budget or (find_budget(reasoning.effort) if reasoning.effort else None)
    return set_fields(type="enabled", token_budget=budget)


def _thinking(thinking: bool | int | None) -> dict[str, Any] | None:
    if thinking is None:
        return None
    if isinstance(thinking, bool):
        return {"type": "enabled" if thinking else "disabled"}
    return {"type": "enabled", "token_budget": thinking}
