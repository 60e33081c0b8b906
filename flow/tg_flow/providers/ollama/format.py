"""Ollama's API <-> our records: pure functions of values, after its public reference ("Generate a chat message")."""

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import msgspec

from tg_base.llm import LlmChunk, call_arguments, event_error
from tg_base.llm.http import UNREADABLE
from tg_flow.providers.openai import NO_TOKEN_ID
from tg_schema import ImagePart, ModelInfo, Sampling, TextCompletionRequest, Token, Tool, ToolCallDelta
from tg_schema.errors import BadRequest, ProtocolError


class _CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any]


class _Call(msgspec.Struct, frozen=True):
    function: _CalledFunction


class _Message(msgspec.Struct, frozen=True, omit_defaults=True):
    role: str
    content: str
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
) -> ChatRequest:
    """The body for a request.

    Raises:
        BadRequest: the request has a form that this API does not know; the message says which.
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
            stop=sampling.stop,
            seed=sampling.seed,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            num_ctx=num_ctx,
        ),
        think=think,
        keep_alive=keep_alive,
        logprobs=None if sampling.logprobs is None else True,
        top_logprobs=sampling.logprobs or None,
    )


def _messages(request: TextCompletionRequest) -> Iterable[_Message]:
    if request.system_text:
        yield _Message("system", request.system_text)
    names = {call.id: call.name for turn in request.turns for call in turn.tool_calls}
    for turn in request.turns:
        calls = tuple(_Call(_CalledFunction(call.name, call_arguments(call.arguments))) for call in turn.tool_calls)
        name = (turn.name or names.get(turn.tool_call_id or "")) if turn.role == "tool" else None
        yield _Message(turn.role, turn.text, tuple(_image(image) for image in turn.images), calls, name)


def _image(image: ImagePart) -> str:
    if image.data is None:
        raise BadRequest("this provider takes no image by its URL; send the image itself, as base64 in `data`")
    return image.data


def _tool(tool: Tool) -> _Tool:
    return _Tool(_Function(tool.name, tool.description, tool.parameters))


class _AskedFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any] = {}


class _AskedCall(msgspec.Struct, frozen=True):
    function: _AskedFunction
    id: str | None = None


class _Said(msgspec.Struct, frozen=True, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: tuple[_AskedCall, ...] | None = None


class _TopLogprob(msgspec.Struct, frozen=True, gc=False):
    logprob: float


class _Logprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    top_logprobs: tuple[_TopLogprob, ...] | None = None


class ChatLine(msgspec.Struct, frozen=True):
    """One line of an answer; the last one is `done`."""

    model: str | None = None
    message: _Said | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    logprobs: tuple[_Logprob, ...] | None = None
    error: Any = None


class _Model(msgspec.Struct, frozen=True):
    name: str


class _ModelList(msgspec.Struct, frozen=True):
    models: tuple[_Model, ...]


_decode = msgspec.json.Decoder(ChatLine).decode
_encode = msgspec.json.Encoder().encode
_NOTHING = _Said()


def model_list(body: bytes) -> tuple[ModelInfo, ...]:
    """The models of `GET /api/tags`: those that the server has on its disk."""
    return tuple(ModelInfo(model.name) for model in msgspec.json.decode(body, type=_ModelList).models)


class StreamDecoder:
    """One answer as it is read: lines in, chunks out."""

    def __init__(self) -> None:
        self.done = False
        self._calls = 0

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk for a line; None where it has nothing to say.

        Raises:
            ProtocolError: the line is not of an answer.
            TgError: the provider reports an error in its stream.
        """
        try:
            line = _decode(data)
        except UNREADABLE:
            raise ProtocolError("the provider sent a line that is not of an answer; check base_url") from None
        if line.error is not None:
            raise event_error(None)
        said = line.message or _NOTHING
        if line.done or said.tool_calls or said.thinking or line.logprobs:
            return self._uncommon(line, said)
        return LlmChunk(said.content, model=line.model) if said.content else None

    def _uncommon(self, line: ChatLine, said: _Said) -> LlmChunk:
        calls = tuple(self._call(call) for call in said.tool_calls or ())
        self.done = line.done
        return LlmChunk(
            said.content or "",
            in_token=line.prompt_eval_count if line.done else None,
            out_token=line.eval_count if line.done else None,
            model=line.model,
            finish_reason=self._finish(line) if line.done else None,
            reasoning=said.thinking or None,
            tokens=tuple(
                Token(
                    NO_TOKEN_ID,
                    one.token,
                    one.logprob,
                    tuple((NO_TOKEN_ID, top.logprob) for top in one.top_logprobs or ()),
                )
                for one in line.logprobs or ()
            ),
            tool_calls=calls,
        )

    def _finish(self, line: ChatLine) -> str:
        if line.done_reason == "length":
            return "length"
        return "tool_calls" if self._calls else "stop"

    def _call(self, call: _AskedCall) -> ToolCallDelta:
        """A call comes whole. Older servers give it no id, so we do: results are told by the tool's name anyway."""
        index = self._calls
        self._calls += 1
        arguments = _encode(call.function.arguments).decode()
        return ToolCallDelta(index, call.id or f"call_{uuid4().hex}", call.function.name, arguments)
