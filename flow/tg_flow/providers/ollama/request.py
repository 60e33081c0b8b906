"""TextCompletionRequest -> Ollama's `POST /api/chat`, after its public reference ("Generate a chat message")."""

from collections.abc import Iterable
from typing import Any

import msgspec

from tg_base.llm import call_arguments, find_effort, read_signature
from tg_schema import ImagePart, Message, Sampling, TextCompletionRequest, Tool
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Effort, Reasoning

ORIGIN = "ollama"
"""The origin in signatures of Ollama's thinking, which have no value."""

_LEVELS: dict[Effort, str] = {"minimal": "low", "low": "low", "medium": "medium"}
"""The others are "high"."""


class _CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any]


class _Call(msgspec.Struct, frozen=True):
    function: _CalledFunction


class _Message(msgspec.Struct, frozen=True, omit_defaults=True):
    role: str
    content: str
    thinking: str | None = None
    images: tuple[str, ...] = ()
    tool_calls: tuple[_Call, ...] = ()
    tool_name: str | None = None


class _Function(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]


class _Tool(msgspec.Struct, frozen=True):
    function: _Function
    type: str = "function"


class _Options(msgspec.Struct, frozen=True, omit_defaults=True):
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    num_predict: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    num_ctx: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repeat_penalty: float | None = None


class ChatRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of `POST /api/chat`."""

    model: str
    messages: tuple[_Message, ...]
    stream: bool
    tools: tuple[_Tool, ...] = ()
    format: str | dict[str, Any] | None = None
    options: _Options = _Options()
    think: bool | str | None = None
    keep_alive: str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


def to_wire(
    request: TextCompletionRequest,
    model: str,
    sampling: Sampling,
    *,
    think: bool | str | None = None,
    num_ctx: int | None = None,
    keep_alive: str | None = None,
    levels: bool = False,
) -> ChatRequest:
    """The body for a request.

    Raises:
        BadRequest: this API cannot express the request; the message says why.
    """
    if request.tool_choice not in {None, "", "auto", "none"}:
        raise BadRequest('this provider cannot make its model call a tool; tool_choice may be "auto" or "none"')
    return ChatRequest(
        model=model,
        messages=tuple(_messages(request)),
        stream=True,
        tools=() if request.tool_choice == "none" else tuple(_tool(tool) for tool in request.tools),
        format=request.schema or ("json" if request.response_format == "json" else None),
        options=_Options(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            num_predict=sampling.max_tokens,
            stop=tuple(sampling.stop),
            seed=sampling.seed,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            num_ctx=num_ctx,
            min_p=sampling.min_p,
            typical_p=sampling.typical_p,
            repeat_penalty=sampling.repetition_penalty,
        ),
        think=think if request.reasoning is None else _think(request.reasoning, levels=levels),
        keep_alive=keep_alive,
        logprobs=None if sampling.logprobs is None else True,
        top_logprobs=sampling.logprobs or None,
    )


def _messages(request: TextCompletionRequest) -> Iterable[_Message]:
    if request.system_text:
        yield _Message("system", request.system_text)
    # Ollama matches a tool's result to its call by the tool's name, not by an id.
    names = {call.id: call.name for turn in request.turns for call in turn.tool_calls}
    for turn in request.turns:
        calls = tuple(_Call(_CalledFunction(call.name, call_arguments(call.arguments))) for call in turn.tool_calls)
        name = (turn.name or names.get(turn.tool_call_id or "")) if turn.role == "tool" else None
        images = tuple(_image(image) for image in turn.images)
        yield _Message(turn.role, turn.text, _thinking(turn), images, calls, name)


def _thinking(turn: Message) -> str | None:
    """The server wants a model's thinking back with its calls; there is no proof of it."""
    thinking = [part for part in turn.parts if isinstance(part, ReasoningPart)]
    return "".join(part.text for part in thinking if read_signature(part.signature, ORIGIN) is not None) or None


def _think(reasoning: Reasoning, *, levels: bool) -> bool | str | None:
    effort = find_effort(reasoning)
    if effort is None or effort == "none" or not levels:
        return None if effort is None else effort != "none"
    return _LEVELS.get(effort, "high")


def _image(image: ImagePart) -> str:
    if image.data is None:
        raise BadRequest("this provider takes no image by its URL; send the image itself, as base64 in `data`")
    return image.data


def _tool(tool: Tool) -> _Tool:
    return _Tool(_Function(tool.name, tool.description, tool.parameters))
