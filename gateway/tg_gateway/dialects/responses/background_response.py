"""A response in the background -> a log while it is made -> the response and its events, for any reader.

The log has the response as it was created, and the records of its answer. Every reader makes the same events from them,
wherever it begins. The last event is made from the log's end, so that every reader gets the same one, even if the
writer died before writing one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from tg_gateway.dialects import (
    Answer,
    Background,
    EventCutter,
    KeptAnswer,
    KeptAnswers,
    RecordedEnd,
    StreamedAnswer,
    Waiting,
    Writer,
    join_output,
    server_sent_event,
)
from tg_gateway.dialects.responses.events import describe_stream_error
from tg_gateway.dialects.responses.output_draft import REFUSALS, OutputForm
from tg_gateway.dialects.responses.request import RESPONSES_FIELDS
from tg_gateway.dialects.responses.request_body import InputItem, RequestBody
from tg_gateway.dialects.responses.response_draft import ResponseDraft
from tg_gateway.dialects.responses.response_object import ResponseError, ResponseStatus
from tg_gateway.dialects.responses.writers import BackgroundWriter
from tg_schema import TextCompletionResponse, TgError, decode, encode
from tg_schema.errors import TooLarge

EVENTS_CUT: Final = "the events of this response are too many to be kept: get it without stream"
_LAST: Final = {"completed": b"response.completed", "incomplete": b"response.incomplete"}
_FAILURES: Final = {
    "expired": ResponseError(
        "rate_limit_exceeded", "expired: its model had no room for it in time; create it again, with a longer max_wait"
    ),
    "died": ResponseError("server_error", "its gateway or processor has ended, or lost the bus: create it again"),
    "too-large": ResponseError("server_error", "the response is larger than what is kept: set max_output_tokens"),
}


class BackgroundHead(msgspec.Struct, frozen=True):
    """The head of the log, written first.

    Attributes:
        response: the response as it was created.
        items: the whole conversation before its output.
        streamed: whether the response has events.
        form: how the response's items are sent.
    """

    response: msgspec.Raw
    items: tuple[InputItem, ...]
    streamed: bool
    form: OutputForm = OutputForm()

    def restore(self) -> ResponseDraft:
        """The draft of the response as it was created."""
        return ResponseDraft.restore(bytes(self.response), self.form)


@dataclass(frozen=True, slots=True)
class WaitTerms:
    """The gateway's limits for responses that wait.

    Attributes:
        max_wait: maximum and default of the seconds that a response waits.
        attempts: default of how often a model may be asked.
    """

    max_wait: float
    attempts: int

    def make_waiting(self, body: RequestBody) -> Waiting:
        """The terms of one response."""
        return Waiting(min(body.max_wait or self.max_wait, self.max_wait), body.max_attempts or self.attempts)


class _Stated(msgspec.Struct, frozen=True):
    status: ResponseStatus


def make_background(
    draft: ResponseDraft,
    items: tuple[InputItem, ...],
    headers: Mapping[str, str],
    *,
    streamed: bool,
    waiting: Waiting | None = None,
) -> Background:
    """How the gateway keeps a response while it is made.

    Args:
        draft: the draft of the response.
        items: the whole conversation before its output.
        headers: further headers of its answer.
        streamed: whether the client requested its events.
        waiting: the terms on which it waits for capacity; None = it does not wait.
    """
    head = BackgroundHead(msgspec.Raw(join_output(draft.encode())), items, streamed, draft.form)
    # A partial of a function, since closures cannot be pickled.
    answer = partial(_answer_first, response_id=draft.response.id, head=head, headers=headers)
    return Background(draft.response.id, encode(head), streamed, answer, waiting=waiting)


def _answer_first(
    kept: KeptAnswers, *, response_id: str, head: BackgroundHead, headers: Mapping[str, str]
) -> Answer | StreamedAnswer:
    """The first answer, to the client that has asked."""
    if head.streamed:
        return stream_events(kept, response_id, head, -1, headers)
    return Answer(bytes(head.response), headers=headers)


def show_response(answer: KeptAnswer, head: BackgroundHead) -> bytes:
    """The current response."""
    if answer.outcome == "ended":
        return _show_ended(decode(RecordedEnd, answer.end), head.restore())
    if answer.outcome == "running" and not answer.begun:
        return bytes(head.response)
    status = {"running": "in_progress", "cancelled": "cancelled"}.get(answer.outcome, "failed")
    fields = decode(dict[str, msgspec.Raw], head.response)
    return encode(fields | {"status": status, "error": _FAILURES.get(answer.outcome)})


def _show_ended(end: RecordedEnd, draft: ResponseDraft) -> bytes:
    draft.ended_at = end.at
    error = None if end.error is None else RESPONSES_FIELDS.translate(TgError.of(end.error))
    # Making events updates the draft.
    try:
        for record in end.records:
            deque(draft.add(decode(TextCompletionResponse, record)), 0)
    except REFUSALS as refusal:
        error = refusal
    if error is None:
        deque(draft.end(), 0)
    else:
        draft.close(error, cancelled=end.cancelled)
    return join_output(draft.encode())


def read_status(response: bytes) -> ResponseStatus:
    """The status in a response."""
    return decode(_Stated, response).status


def stream_events(
    kept: KeptAnswers, response_id: str, head: BackgroundHead, after: int, headers: Mapping[str, str]
) -> StreamedAnswer:
    """The events with numbers over `after`, including later ones. Ends orderly, however the response ended.

    The last event is `error` if the log cannot be read any further, or the end of a silent writer cannot be appended.
    """
    cutter = EventCutter(after)
    parts, fail = _follow_events(kept, response_id, head, cutter), partial(_make_error_event, cutter)
    return StreamedAnswer(parts, Writer.content_type, {**Writer.headers, **headers}, Writer.keep_alive, fail)


def _make_error_event(cutter: EventCutter, error: TgError) -> bytes:
    """The event that says why the events stop here. It says nothing about the state of the response."""
    # The event has the number of the one before it, after which its reader resumes.
    data = b'%b,"sequence_number":%d}' % (encode(describe_stream_error(error))[:-1], cutter.last)
    return server_sent_event(data, b"error")


async def _follow_events(
    kept: KeptAnswers, response_id: str, head: BackgroundHead, cutter: EventCutter
) -> AsyncGenerator[bytes, None]:
    # Only the last event, which this writer does not make, depends on how the answer ended.
    writer, rest = BackgroundWriter(head.restore()), b""
    events = writer.begin()
    async with aclosing(kept.follow(response_id)) as steps:
        async for step in steps:
            if isinstance(step, KeptAnswer):
                if step.cut:
                    raise TooLarge(EVENTS_CUT)
                data = cutter.add(events)
                data += cutter.add(_make_last_event(step, head, cutter.number))
            else:
                *lines, rest = (rest + step).split(b"\n")
                data = cutter.add(events + b"".join(map(writer.write_line, lines)))
            events = b""
            # The HTTP head leaves with the first bytes, and the next event may take long.
            if data or not step:
                yield data or Writer.keep_alive
            # Kept records may come all at once: give other streams a turn in between.
            await asyncio.sleep(0)


def _make_last_event(answer: KeptAnswer, head: BackgroundHead, number: int) -> bytes:
    response = show_response(answer, head)
    name = _LAST.get(read_status(response), b"response.failed")
    data = b'{"type":"%b","response":%b,"sequence_number":%d}' % (name, response, number)
    return server_sent_event(data, name)
