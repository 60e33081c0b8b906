"""Events of Mistral's chat completions -> LlmChunks, after its public API reference: a variant of OpenAI's."""

from typing import Any, Final

import msgspec
from typing_extensions import override

from tg_base.llm import ErrorDetail, LlmChunk, event_error, write_signature
from tg_flow.providers.mistral.request import ORIGIN
from tg_flow.providers.openai import stream
from tg_schema import Usage, encode
from tg_schema.errors import ProtocolError


class _Thought(msgspec.Struct, frozen=True, gc=False):
    text: str = ""


class _Piece(msgspec.Struct, frozen=True):
    """A piece of content: "text", "thinking", or another type without text, such as a reference."""

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


class _Usage(stream.Counts, frozen=True):
    num_cached_tokens: int | None = None

    @property
    @override
    def totals(self) -> Usage:
        totals = super().totals
        cached = self.num_cached_tokens if self.prompt_tokens_details is None else totals.cached_token
        return msgspec.structs.replace(totals, cached_token=cached)


class ChatEvent(msgspec.Struct, frozen=True):
    """One event of a stream. An error event has the fields of an error response's body."""

    choices: tuple[_Choice, ...] | None = None
    model: str | None = None
    usage: _Usage | None = None
    object: str | None = None
    type: str | None = None
    code: str | int | None = None
    error: stream.Fault | str | None = None


_UNLIKE: Final = "the provider did not repeat the beginning of the answer that it was to go on with"
_decode = msgspec.json.Decoder(ChatEvent).decode


def error_detail(body: bytes) -> ErrorDetail:
    """The `type` of an error. Validation and key errors only have a sentence in `detail`, which is not a code."""
    return ErrorDetail(_decode(body).type or "")


class StreamDecoder(stream.StreamDecoder):
    """Decodes one answer: events in, chunks out.

    Args:
        prefix: the part of the answer that the request gave. The API must repeat it; anything else is an error.
    """

    __slots__ = ("_prefix", "_signature", "_thinks")

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix
        self._thinks = False
        self._signature = ""

    @override
    def chunk(self, data: bytes) -> LlmChunk | None:
        chunk = super().chunk(data)
        thinks = self._thinks or bool(self._signature)
        if chunk is None or not thinks or not (chunk.text or chunk.tool_calls or chunk.finish_reason):
            return chunk
        # Thinking ends here. The API wants it back even without a signature of its own.
        signature = write_signature(ORIGIN, self._signature)
        self._thinks, self._signature = False, ""
        return msgspec.structs.replace(chunk, signature=signature)

    @override
    def read(self, data: bytes) -> stream.ChatEvent:
        event = _decode(data)
        if event.choices is None:
            raise _fault(event)
        choices = tuple([self._convert_choice(choice) for choice in event.choices if choice.index == 0])
        return stream.ChatEvent(choices, event.model, event.usage)

    def _convert_choice(self, choice: _Choice) -> stream.Choice:
        content = choice.delta.content
        pieces = content if isinstance(content, tuple) else (_Piece(text=content or ""),)
        thought = "".join([_thought(piece) for piece in pieces])
        self._thinks = self._thinks or bool(thought)
        self._signature = next((piece.signature for piece in pieces if piece.signature), self._signature)
        text = self._skip_prefix("".join([piece.text for piece in pieces]), choice.finish_reason)
        calls = tuple([_convert_call(call) for call in choice.delta.tool_calls or ()])
        delta = stream.Delta(text, reasoning_content=thought or None, tool_calls=calls)
        return stream.Choice(delta=delta, finish_reason=choice.finish_reason)

    def _skip_prefix(self, text: str, reason: str | None) -> str:
        begun = text[: len(self._prefix)]
        expected, self._prefix = self._prefix, self._prefix[len(begun) :]
        if not expected.startswith(begun) or (self._prefix and reason not in {None, "", "error"}):
            raise ProtocolError(_UNLIKE)
        return text[len(begun) :]


def _convert_call(call: _Call) -> stream.CallDelta:
    """A call arrives whole, or in pieces; later pieces have the first one's index and no id."""
    function = call.function
    arguments = function.arguments if isinstance(function.arguments, str) else encode(function.arguments).decode()
    # Mistral sends the text "null" where a later piece has no id.
    known = None if call.id == "null" else call.id
    return stream.CallDelta(call.index, known, stream.Function(function.name, arguments))


def _thought(piece: _Piece) -> str:
    thinking = piece.thinking
    return thinking if isinstance(thinking, str) else "".join(thought.text for thought in thinking)


def _fault(event: ChatEvent) -> Exception:
    if isinstance(event.error, stream.Fault):
        return event_error(event.error.code, event.error.type)
    if event.object == "error" or event.error is not None:
        return event_error(event.type or event.code)
    return ProtocolError("the provider sent an event that is not of a chat completion")
