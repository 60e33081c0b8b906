"""Events of Mistral's chat completions -> LlmChunks, after its public API reference: a variant of OpenAI's."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tg_base.llm import CallNumbers, ErrorDetail, LlmChunk, UsageDeltas, event_error, write_signature
from tg_flow.providers.mistral.request import ORIGIN
from tg_schema import FinishReason, ToolCallDelta, Usage
from tg_schema.errors import ProtocolError

_FINISH: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
}


class _Thought(msgspec.Struct, frozen=True, gc=False):
    text: str = ""


class _Piece(msgspec.Struct, frozen=True):
    """A piece of content: "text", "thinking", or another type without text (for instance a reference)."""

    type: str | None = None
    text: str = ""
    thinking: tuple[_Thought, ...] | str = ()
    signature: str | None = None


class _Function(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: str | dict[str, Any] = ""


class _Call(msgspec.Struct, frozen=True):
    function: _Function
    id: str | None = None
    index: int | None = None


class _Delta(msgspec.Struct, frozen=True):
    content: str | tuple[_Piece, ...] | None = None
    tool_calls: tuple[_Call, ...] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta
    index: int = 0
    finish_reason: str | None = None


class _Details(msgspec.Struct, frozen=True, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    num_cached_tokens: int | None = None


class _Fault(msgspec.Struct, frozen=True):
    code: str | int | None = None
    type: str | None = None


class ChatEvent(msgspec.Struct, frozen=True):
    """One event of a stream; an error event has the fields of an error's body."""

    choices: tuple[_Choice, ...] | None = None
    model: str | None = None
    usage: _Usage | None = None
    object: str | None = None
    type: str | None = None
    code: str | int | None = None
    error: _Fault | str | None = None


_decode = msgspec.json.Decoder(ChatEvent).decode
_encode = msgspec.json.Encoder().encode


def error_detail(body: bytes) -> ErrorDetail:
    """The `type` of an error; validation and key errors have only a sentence in `detail`, which is not a code."""
    return ErrorDetail(_decode(body).type or "")


class StreamDecoder:
    """Decodes one answer: events in, chunks out."""

    def __init__(self) -> None:
        self.done = False
        self._counts = UsageDeltas()
        self._calls = CallNumbers()
        self._thinks = False
        self._signature = ""

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk of an event's data; None for an event without content, for instance the role.

        Raises:
            ProtocolError: the data is not an event of a chat completion.
            TgError: the provider reports an error in its stream.
            Exception: as `EventDecoder`.
        """
        if data == b"[DONE]":
            self.done = True
            return None
        event = _decode(data)
        if event.choices is None:
            raise _fault(event)
        choice = next((choice for choice in event.choices if choice.index == 0), None)
        if choice is None:
            return LlmChunk().with_usage(self._count(event.usage)) if event.usage else None
        chunk = self._convert_delta(choice.delta, event.model)
        if choice.finish_reason is None and event.usage is None:
            return chunk
        return self._last(chunk or LlmChunk(model=event.model), choice.finish_reason, event.usage)

    def _convert_delta(self, delta: _Delta, model: str | None) -> LlmChunk | None:
        calls = tuple(self._call(call) for call in delta.tool_calls or ())
        content = delta.content
        if not content and not calls:
            return None
        pieces = content if isinstance(content, tuple) else (_Piece(text=content or ""),)
        text = "".join(piece.text for piece in pieces)
        thought = "".join(_thought(piece) for piece in pieces)
        self._thinks = self._thinks or bool(thought)
        self._signature = next((piece.signature for piece in pieces if piece.signature), self._signature)
        signature = self._sign() if text or calls else None
        return LlmChunk(text, model=model, reasoning=thought or None, signature=signature, tool_calls=calls)

    def _sign(self) -> str | None:
        """The signature of the thinking that ends here; the API wants it back even without a proof."""
        thinks, signature = self._thinks or bool(self._signature), self._signature
        self._thinks, self._signature = False, ""
        return write_signature(ORIGIN, signature) if thinks else None

    def _call(self, call: _Call) -> ToolCallDelta:
        """A call is sent at once, or in pieces; later pieces have the first one's index and no id."""
        function = call.function
        arguments = function.arguments if isinstance(function.arguments, str) else _encode(function.arguments).decode()
        # Mistral sends the text "null" for the missing id of a later piece.
        known = None if call.id in {None, "null"} else call.id
        number = self._calls.number(call.index, known, function.name)
        return ToolCallDelta(number, known, function.name or None, arguments)

    def _last(self, chunk: LlmChunk, reason: str | None, usage: _Usage | None) -> LlmChunk:
        if reason == "error":
            raise event_error(None)
        return msgspec.structs.replace(
            chunk.with_usage(self._count(usage)) if usage else chunk,
            signature=chunk.signature or (self._sign() if reason else None),
            finish_reason=_FINISH.get(reason, "stop") if reason else None,
        )

    def _count(self, usage: _Usage) -> Usage:
        details = usage.prompt_tokens_details
        cached = usage.num_cached_tokens if details is None else details.cached_tokens
        return self._counts.add_totals(Usage(usage.prompt_tokens, usage.completion_tokens, cached))


def _thought(piece: _Piece) -> str:
    thinking = piece.thinking
    return thinking if isinstance(thinking, str) else "".join(thought.text for thought in thinking)


def _fault(event: ChatEvent) -> Exception:
    if isinstance(event.error, _Fault):
        return event_error(event.error.code, event.error.type)
    if event.object == "error" or event.error is not None:
        return event_error(event.type or event.code)
    return ProtocolError("the provider sent an event that is not of a chat completion")
