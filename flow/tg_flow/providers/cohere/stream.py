"""Events of Cohere's chat -> LlmChunks, after its public API reference ("Chat", v2, "Streaming")."""

from collections.abc import Mapping
from typing import Final

import msgspec

from tg_base.llm import Embeddings, LlmChunk, event_error, write_signature
from tg_flow.providers.cohere.request import ORIGIN
from tg_schema import FinishReason, ModelInfo, ToolCallDelta

_FINISH: Final[Mapping[str, FinishReason]] = {"MAX_TOKENS": "length", "TOOL_CALL": "tool_calls"}
_REQUEST_TIMEOUT_STATUS = 408


class _Content(msgspec.Struct, frozen=True, gc=False):
    text: str | None = None
    thinking: str | None = None


class _Function(msgspec.Struct, frozen=True, gc=False):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct, frozen=True):
    id: str | None = None
    function: _Function = _Function()


class _Message(msgspec.Struct, frozen=True):
    """In the first event of a message `content` and `tool_calls` are lists, later they are single objects."""

    content: _Content | list[_Content] | None = None
    tool_calls: _Call | list[_Call] | None = None
    tool_plan: str | None = None


class _Tokens(msgspec.Struct, frozen=True, gc=False):
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None


class _Usage(msgspec.Struct, frozen=True):
    tokens: _Tokens | None = None
    billed_units: _Tokens | None = None
    cached_tokens: int | float | None = None


class _Delta(msgspec.Struct, frozen=True):
    message: _Message | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None


class ChatEvent(msgspec.Struct, frozen=True):
    """One event of a stream."""

    type: str
    index: int = 0
    delta: _Delta | None = None


class _Model(msgspec.Struct, frozen=True):
    name: str


class _ModelList(msgspec.Struct, frozen=True):
    models: tuple[_Model, ...]


_decode = msgspec.json.Decoder(ChatEvent).decode


def model_list(body: bytes) -> tuple[ModelInfo, ...]:
    """The models of `GET /v1/models`."""
    return tuple(ModelInfo(model.name, "cohere") for model in msgspec.json.decode(body, type=_ModelList).models)


class _Vectors(msgspec.Struct, frozen=True, rename={"floats": "float"}):
    floats: tuple[tuple[float, ...], ...]


class _Meta(msgspec.Struct, frozen=True):
    billed_units: _Tokens | None = None


class _Embedded(msgspec.Struct, frozen=True):
    embeddings: _Vectors
    meta: _Meta | None = None


def read_embeddings(body: bytes) -> Embeddings:
    """The vectors in the answer to `POST /v2/embed`."""
    answer = msgspec.json.decode(body, type=_Embedded)
    billed = answer.meta.billed_units if answer.meta else None
    count = billed.input_tokens if billed else None
    return Embeddings(answer.embeddings.floats, None if count is None else int(count))


class StreamDecoder:
    """Decodes one answer: events in, chunks out."""

    def __init__(self) -> None:
        self.done = False
        self._thinks = False

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk of an event's data; None for an event without content, such as a citation.

        Raises:
            TgError: the provider reports an error in its stream.
            Exception: as `EventDecoder`.
        """
        event = _decode(data)
        delta = event.delta
        if delta is None:
            return None
        if event.type == "message-end":
            self.done = True
            return self._sign(_end(delta))
        chunk = _convert_message(delta.message, event.index) if delta.message is not None else None
        content = delta.message.content if delta.message is not None else None
        self._thinks = self._thinks or (isinstance(content, _Content) and bool(content.thinking))
        return self._sign(chunk) if chunk is not None and chunk.reasoning is None else chunk

    def _sign(self, chunk: LlmChunk) -> LlmChunk:
        """Sign this chunk if thinking came before it. The signature ends the thinking, so the client can send it back.

        A plan of calls is sent back as the turn's text.
        """
        thinks, self._thinks = self._thinks, False
        return msgspec.structs.replace(chunk, signature=write_signature(ORIGIN, "")) if thinks else chunk


def _convert_message(message: _Message, index: int) -> LlmChunk | None:
    content = message.content
    if isinstance(content, _Content):
        if content.text:
            return LlmChunk(content.text)
        return LlmChunk(reasoning=content.thinking) if content.thinking else None
    if message.tool_plan:
        return LlmChunk(reasoning=message.tool_plan)
    call = message.tool_calls
    if isinstance(call, _Call):
        function = call.function
        return LlmChunk(tool_calls=(ToolCallDelta(index, call.id, function.name, function.arguments or ""),))
    return None


def _end(delta: _Delta) -> LlmChunk:
    reason = delta.finish_reason
    if reason is None or reason.startswith("ERROR"):
        raise event_error(reason)
    if reason == "TIMEOUT":
        raise event_error(_REQUEST_TIMEOUT_STATUS)
    usage = delta.usage or _Usage()
    # Billed units may be fewer than the tokens; use them only if nothing else is reported.
    tokens = usage.tokens or usage.billed_units or _Tokens()
    return LlmChunk(
        in_token=_whole(tokens.input_tokens),
        out_token=_whole(tokens.output_tokens),
        cached_token=_whole(usage.cached_tokens),
        finish_reason=_FINISH.get(reason, "stop"),
    )


def _whole(count: float | None) -> int | None:
    """Cohere sends token counts as 11 or as 11.0."""
    return None if count is None else int(count)
