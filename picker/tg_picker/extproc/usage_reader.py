"""Endpoint's answer -> picker: the server's token counts, from JSON or from server-sent events."""

import msgspec
from msgspec import Struct

from tg_picker.core import InstanceUsage

MAX_TAIL_BYTES = 64 * 1024
"""Bytes kept of an answer's end, where a stream has its usage. If a plain JSON answer is longer, its usage is lost."""
_EVENT_STREAM = "text/event-stream"


class _Details(Struct):
    cached_tokens: int | None = None


class _Counts(Struct):
    """Token counts by the names of OpenAI's chats and completions, of Responses, and of Anthropic."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: int | None = None


class _Answer(Struct):
    """A JSON body, or an event. `response` is in the last event of Responses, which contains the whole answer."""

    usage: _Counts | None = None
    response: "_Answer | None" = None


_DECODER = msgspec.json.Decoder(_Answer)


class UsageReader:
    """Takes an answer's pieces, however it is split, and keeps the last MAX_TAIL_BYTES."""

    def __init__(self, content_type: str) -> None:
        self._events = content_type.lower().startswith(_EVENT_STREAM)
        self._tail = bytearray()
        self._cut = False

    @property
    def held(self) -> int:
        """Bytes that it holds."""
        return len(self._tail)

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        self._tail += piece
        # Drop bytes in large steps: to drop a few at each piece would copy the tail each time.
        if len(self._tail) > 2 * MAX_TAIL_BYTES:
            del self._tail[:-MAX_TAIL_BYTES]
            self._cut = True

    def read(self) -> InstanceUsage | None:
        """The usage; None if the answer has none, or is not of the type that it declares."""
        if not self._events:
            return None if self._cut else _usage(bytes(self._tail))
        lines = bytes(self._tail).splitlines()
        found = (_usage(line[5:]) for line in reversed(lines) if line.startswith(b"data:") and b'"usage"' in line)
        return next((usage for usage in found if usage is not None), None)


def _usage(data: bytes) -> InstanceUsage | None:
    try:
        answer = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    counts = answer.usage or (answer.response.usage if answer.response else None)
    if counts is None:
        return None
    details = counts.prompt_tokens_details or counts.input_tokens_details
    cached = details.cached_tokens if details else counts.cache_read_input_tokens
    prompt = counts.prompt_tokens if counts.prompt_tokens is not None else counts.input_tokens
    output = counts.completion_tokens if counts.completion_tokens is not None else counts.output_tokens
    return InstanceUsage.reported(prompt, cached, output)
