"""Records of one answer -> server-sent events, messages of a WebSocket, or one body."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import (
    MAX_KEPT_BYTES,
    Output,
    Writer,
    append_output,
    format_retry_after,
    is_text_alone,
    join_output,
    measure_output,
    server_sent_event,
    text_frame,
)
from tg_gateway.dialects.chat import ErrorObject, describe_error
from tg_gateway.dialects.responses.events import Event, TextDelta
from tg_gateway.dialects.responses.item_drafts import MessageDraft
from tg_gateway.dialects.responses.output_draft import REFUSALS
from tg_gateway.dialects.responses.response_draft import ResponseDraft
from tg_gateway.dialects.responses.response_object import ResponseObject
from tg_schema import TextCompletionResponse, TgError, decode, encode
from tg_schema.errors import Cancelled

MAX_EVENT_BYTES: Final = 3 * MAX_KEPT_BYTES // 8
"""The most bytes of a response's events. If there are more, the response is kept without them."""
_TEXT_DELTA: Final = str(TextDelta.__struct_config__.tag).encode()


class EventWriter(Writer[TextCompletionResponse]):
    """Named and numbered events. A failure is the last event, after which the connection is cut.

    Args:
        draft: the draft of the response.
    """

    cut_after_failure = True

    def __init__(self, draft: ResponseDraft) -> None:
        self._draft = draft
        self._number = 0
        self._message: MessageDraft | None = None
        self._delta = b""

    @override
    def write(self, record: TextCompletionResponse) -> Output:
        if self._message is not None and is_text_alone(record):
            return self._write_text(self._message, record.response or "")
        # The first events already name the answering model.
        events = self._draft.add(record)
        data = append_output(self._begin(), self._encode(events))
        self._message = self._draft.output.open_message
        if self._message is not None:
            # Cut off `""}`: the text of each record goes there.
            self._delta = encode(self._message.make_delta(""))[:-3]
        return data

    def _write_text(self, message: MessageDraft, text: str) -> bytes:
        """Write one delta without the draft's events; nearly all records take this short way."""
        self._draft.output.add_emitted(message, text)
        data = b'%b%b,"sequence_number":%d}' % (self._delta, encode(text), self._number)
        self._number += 1
        return self.frame(_TEXT_DELTA, data)

    @override
    def end(self) -> Output:
        return self._encode(self._draft.end())

    @override
    def fail(self, error: TgError) -> Output:
        return append_output(self._begin(), self._encode(self._draft.fail(error)))

    def _begin(self) -> Output:
        return b"" if self._number else self._encode(self._draft.begin())

    def _encode(self, events: Iterable[Event]) -> Output:
        data = b"".join([self.frame(*self._number_event(event)) for event in events])
        return self._draft.long_fields.fill(data)

    def _number_event(self, event: Event) -> tuple[bytes, bytes]:
        """The event's type, and its JSON with its number; long fields are still marks."""
        data = b'%b,"sequence_number":%d}' % (encode(event)[:-1], self._number)
        self._number += 1
        return str(event.__struct_config__.tag).encode(), data

    def frame(self, name: bytes, data: bytes) -> bytes:
        """The bytes of one event of this type, with this JSON; marks in it are filled in afterwards."""
        return server_sent_event(data, name)


class KeptEventWriter(EventWriter):
    """The same events, for a response that is kept.

    Args:
        draft: the draft of the response.
        events: gets their JSON; it stays empty for a response with more than `MAX_EVENT_BYTES` of events.
    """

    def __init__(self, draft: ResponseDraft, events: list[bytes]) -> None:
        super().__init__(draft)
        self._events = events
        self._size = 0

    @override
    def frame(self, name: bytes, data: bytes) -> bytes:
        filled = self._draft.long_fields.fill(data)
        self._size += measure_output(filled)
        if self._size <= MAX_EVENT_BYTES:
            self._events.append(join_output(filled))
        else:
            self._events.clear()
        return super().frame(name, data)


class BackgroundWriter(EventWriter):
    """The same events without the last one, which each reader makes from what is stored at the end."""

    _refused = False

    def begin(self) -> bytes:
        """The events before a model works on the response; call this first."""
        return join_output(self._begin())

    def write_line(self, line: bytes) -> bytes:
        """The events of one line of `KeptAnswers.follow`. The first one says that a model works on it.

        After a record that the draft refuses there are no events: the response has failed, for every reader.
        """
        events = self._encode(self._draft.start())
        if line and not self._refused:
            record = decode(TextCompletionResponse, line)
            try:
                events = append_output(events, self.write(record))
                if record.last:
                    events = append_output(events, self._encode([*self._draft.end()][:-1]))
            except REFUSALS:
                self._refused = True
        return join_output(events)


class FrameWriter(EventWriter):
    """The same events as messages of a WebSocket.

    Args:
        draft: the draft of the response.
        stream_id: the socket's lane, which each of its events names; None = the lane without a name.
        keep: called with the ended response.
        forget: called if the response failed by itself, not by a cancel.
    """

    def __init__(
        self,
        draft: ResponseDraft,
        stream_id: str | None,
        keep: Callable[[ResponseObject], None],
        forget: Callable[[], None],
    ) -> None:
        super().__init__(draft)
        self._keep = keep
        self._forget = forget
        self._stream_id = stream_id
        self._lane = b"" if stream_id is None else b',"stream_id":%b' % encode(stream_id)

    @override
    def end(self) -> Output:
        data = append_output(self._begin(), super().end())
        self._keep(self._draft.response)
        return data

    @override
    def fail(self, error: TgError) -> Output:
        """A failure before the first event becomes the socket's error message; a later one is the last event."""
        if not isinstance(error, Cancelled):
            self._forget()
        return super().fail(error) if self._number else encode_error_frame(error, self._stream_id)

    @override
    def frame(self, name: bytes, data: bytes) -> bytes:
        # The head of a message says its size. On a socket a request has at most a megabyte, so that a copy is cheap.
        filled = join_output(self._draft.long_fields.fill(data))
        return text_frame(b"%b%b}" % (filled[:-1], self._lane))


class _ErrorFrame(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="error"):
    error: ErrorObject
    status: int
    stream_id: str | None = None
    headers: Mapping[str, str] | None = None


def encode_error_frame(error: TgError, stream_id: str | None) -> bytes:
    """The message that a request on a WebSocket has failed before its first event.

    Its error always has a code, as Open Responses requires (`WebSocketErrorEvent`); over HTTP it may have none.
    `headers` has the headers with which an HTTP answer would say when to try again. Codex reads it there.
    """
    wait = error.retry_after
    headers = None if wait is None else {"retry-after": format_retry_after(wait)}
    detail = describe_error(error)
    detail = msgspec.structs.replace(detail, code=detail.code or detail.type)
    return text_frame(encode(_ErrorFrame(detail, error.status, stream_id, headers)))


def encode_whole(records: Sequence[TextCompletionResponse], draft: ResponseDraft) -> bytes:
    """The whole response: the same as in the last event of a stream."""
    # These events are not sent, but making them updates the draft.
    for events in (*map(draft.add, records), draft.end()):
        deque(events, 0)
    return join_output(draft.encode())
