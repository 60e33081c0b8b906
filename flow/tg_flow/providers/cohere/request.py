"""TextCompletionRequest -> the body of Cohere's `POST /v2/chat`, after its public API reference ("Chat", v2)."""

from collections.abc import Iterable
from typing import Any, TypeGuard

import msgspec

from tg_base.llm import find_budget, read_signature
from tg_schema import ImagePart, Message, Sampling, TextCompletionRequest, TextPart, Tool, ToolCall
from tg_schema.conversation import Part, ReasoningPart
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Reasoning

ORIGIN = "cohere"
"""The origin in signatures of Cohere's thinking, which have no value."""


class _Url(msgspec.Struct, frozen=True):
    url: str


class _Part(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    text: str | None = None
    image_url: _Url | None = None
    thinking: str | None = None


class _CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class _Call(msgspec.Struct, frozen=True):
    id: str
    type: str
    function: _CalledFunction


class _Message(msgspec.Struct, frozen=True, omit_defaults=True):
    role: str
    content: str | tuple[_Part, ...] | None = None
    tool_plan: str | None = None
    tool_calls: tuple[_Call, ...] = ()
    tool_call_id: str | None = None


class _Function(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    parameters: dict[str, Any]
    description: str = ""


class _Tool(msgspec.Struct, frozen=True):
    type: str
    function: _Function


class _ResponseFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    json_schema: dict[str, Any] | None = None


class _Thinking(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    token_budget: int | None = None


class ChatRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of `POST /v2/chat`."""

    model: str
    messages: tuple[_Message, ...]
    stream: bool
    tools: tuple[_Tool, ...] = ()
    tool_choice: str | None = None
    strict_tools: bool = False
    response_format: _ResponseFormat | None = None
    thinking: _Thinking | None = None
    temperature: float | None = None
    p: float | None = None
    k: int | None = None
    max_tokens: int | None = None
    stop_sequences: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    priority: int | None = None


def to_wire(
    request: TextCompletionRequest, model: str, sampling: Sampling, *, thinking: bool | int | None
) -> dict[str, Any]:
    """The body for a request.

    Raises:
        BadRequest: this API cannot express the request; the message says why.
    """
    tools, choice = _choice(request)
    asked = ChatRequest(
        model=model,
        messages=tuple(_messages(request)),
        stream=True,
        tools=tools,
        tool_choice=choice,
        response_format=_response_format(request),
        # Cohere has one switch for all tools of a request.
        strict_tools=any(tool.strict for tool in request.tools),
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
    body: dict[str, Any] = msgspec.to_builtins(asked)
    return body


def _choice(request: TextCompletionRequest) -> tuple[tuple[_Tool, ...], str | None]:
    """The offered tools and the choice. A forced tool is offered alone, because Cohere's choice cannot name one."""
    choice = request.tool_choice or "auto"
    named = tuple(tool for tool in request.tools if tool.name == choice)
    if choice in {"auto", "none", "required"} or not named:
        tool_choice = {"none": "NONE", "required": "REQUIRED"}.get(choice) if request.tools else None
        return tuple(_tool(tool) for tool in request.tools), tool_choice
    return tuple(_tool(tool) for tool in named), "REQUIRED"


def _tool(tool: Tool) -> _Tool:
    return _Tool("function", _Function(tool.name, tool.parameters, tool.description))


def _messages(request: TextCompletionRequest) -> Iterable[_Message]:
    if request.system_text:
        yield _Message("system", request.system_text)
    for turn in request.turns:
        yield _message(turn)


def _message(turn: Message) -> _Message:
    if turn.images and turn.role != "user":
        raise BadRequest(f"messages: this provider takes images from the user only, not in a turn of the {turn.role}")
    if turn.images:
        return _Message("user", tuple(_part(part) for part in turn.content_parts))
    thought = "".join(part.text for part in turn.parts if _is_ours(part))
    thoughts = (_Part("thinking", thinking=thought),) if thought else ()
    if turn.tool_calls:
        calls = tuple(_call(it) for it in turn.tool_calls)
        return _Message("assistant", thoughts or None, turn.text or None, calls)
    if thoughts:
        return _Message("assistant", (*thoughts, *((_Part("text", turn.text),) if turn.text else ())))
    return _Message(turn.role, turn.text, tool_call_id=turn.tool_call_id if turn.role == "tool" else None)


def _part(part: TextPart | ImagePart) -> _Part:
    if isinstance(part, TextPart):
        return _Part("text", text=part.text)
    return _Part("image_url", image_url=_Url(part.url or f"data:{part.media_type};base64,{part.data}"))


def _call(call: ToolCall) -> _Call:
    return _Call(call.id, "function", _CalledFunction(call.name, call.arguments))


def _response_format(request: TextCompletionRequest) -> _ResponseFormat | None:
    if request.schema is not None:
        return _ResponseFormat("json_object", request.schema)
    return _ResponseFormat("json_object") if request.response_format == "json" else None


def _is_ours(part: Part) -> TypeGuard[ReasoningPart]:
    """Whether it is thinking that this API has told, which has no proof."""
    return isinstance(part, ReasoningPart) and read_signature(part.signature, ORIGIN) is not None


def _reasoning(reasoning: Reasoning) -> _Thinking:
    if reasoning.effort == "none" or reasoning.budget == 0:
        return _Thinking("disabled")
    budget = reasoning.budget or (find_budget(reasoning.effort) if reasoning.effort else None)
    return _Thinking("enabled", budget)


def _thinking(thinking: bool | int | None) -> _Thinking | None:
    if thinking is None:
        return None
    if isinstance(thinking, bool):
        return _Thinking("enabled" if thinking else "disabled")
    return _Thinking("enabled", thinking)
