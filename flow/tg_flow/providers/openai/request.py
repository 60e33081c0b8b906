"""TextCompletionRequest -> the body of OpenAI's `POST /chat/completions`, after the public API reference."""

from typing import Any, Literal

import msgspec

from tg_schema import ImagePart, Message, Sampling, TextCompletionRequest, TextPart, Tool, ToolCall
from tg_schema.errors import BadRequest


class _Text(msgspec.Struct, frozen=True):
    text: str
    type: Literal["text"] = "text"


class _Url(msgspec.Struct, frozen=True):
    url: str


class _Image(msgspec.Struct, frozen=True):
    image_url: _Url
    type: Literal["image_url"] = "image_url"


class _CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class _Call(msgspec.Struct, frozen=True):
    id: str
    function: _CalledFunction
    type: Literal["function"] = "function"


class _Message(msgspec.Struct, frozen=True, omit_defaults=True):
    role: str
    content: str | tuple[_Text | _Image, ...] | None = None
    tool_calls: tuple[_Call, ...] = ()
    tool_call_id: str | None = None


class _Function(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    parameters: dict[str, Any]
    description: str = ""


class _Tool(msgspec.Struct, frozen=True):
    function: _Function
    type: Literal["function"] = "function"


class _FunctionName(msgspec.Struct, frozen=True):
    name: str


class _Choice(msgspec.Struct, frozen=True):
    function: _FunctionName
    type: Literal["function"] = "function"


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = True


class _Schema(msgspec.Struct, frozen=True):
    name: str
    schema: dict[str, Any]
    strict: bool


class _ResponseFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    json_schema: _Schema | None = None


class ChatRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of `POST /chat/completions`. `top_k` is not in OpenAI's API, but in that of many compatible servers."""

    model: str
    messages: tuple[_Message, ...]
    stream: bool
    stream_options: _StreamOptions | None = None
    tools: tuple[_Tool, ...] = ()
    tool_choice: str | _Choice | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: _ResponseFormat | None = None


def to_wire(
    request: TextCompletionRequest, model: str, sampling: Sampling, *, completion_tokens: bool, strict: bool
) -> ChatRequest:
    """The body for a request.

    Args:
        request: the request.
        model: its name at the provider.
        sampling: the request's, with the configuration's defaults.
        completion_tokens: send the answer's limit as `max_completion_tokens`, as reasoning models need.
        strict: enforce the schema while the model generates.

    Raises:
        BadRequest: this API cannot express the request; the message says why.
    """
    limit = sampling.max_tokens
    return ChatRequest(
        model=model,
        messages=_messages(request),
        stream=True,
        stream_options=_StreamOptions(),
        tools=tuple(_tool(tool) for tool in request.tools),
        tool_choice=_tool_choice(request),
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_tokens=None if completion_tokens else limit,
        max_completion_tokens=limit if completion_tokens else None,
        stop=sampling.stop or None,
        seed=sampling.seed,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logprobs=None if sampling.logprobs is None else True,
        top_logprobs=sampling.logprobs or None,
        response_format=_response_format(request, strict=strict),
    )


def _messages(request: TextCompletionRequest) -> tuple[_Message, ...]:
    system = request.system_text
    turns = tuple(_message(turn) for turn in request.turns)
    return (_Message("system", system), *turns) if system else turns


def _message(turn: Message) -> _Message:
    if not turn.images:
        return _Message(
            turn.role,
            turn.text or (None if turn.tool_calls else ""),
            tuple(_call(call) for call in turn.tool_calls),
            turn.tool_call_id if turn.role == "tool" else None,
        )
    if turn.role != "user":
        raise BadRequest(f"messages: this provider takes images from the user only, not in a turn of the {turn.role}")
    return _Message("user", tuple(_part(part) for part in turn.parts))


def _part(part: TextPart | ImagePart) -> _Text | _Image:
    if isinstance(part, TextPart):
        return _Text(part.text)
    return _Image(_Url(part.url or f"data:{part.media_type};base64,{part.data}"))


def _call(call: ToolCall) -> _Call:
    return _Call(call.id, _CalledFunction(call.name, call.arguments))


def _tool(tool: Tool) -> _Tool:
    return _Tool(_Function(tool.name, tool.parameters, tool.description))


def _tool_choice(request: TextCompletionRequest) -> str | _Choice | None:
    choice = request.tool_choice
    if not choice or not request.tools:
        return None
    return choice if choice in {"auto", "none", "required"} else _Choice(_FunctionName(choice))


def _response_format(request: TextCompletionRequest, *, strict: bool) -> _ResponseFormat | None:
    if request.schema is not None:
        return _ResponseFormat("json_schema", _Schema("answer", request.schema, strict))
    return _ResponseFormat("json_object") if request.response_format == "json" else None
