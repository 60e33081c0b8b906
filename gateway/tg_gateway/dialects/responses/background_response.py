"""A response in the background -> a log while it is made -> the response and its events, for any reader.

The log has all events but the last. The last one is made from the log's end, so that every reader gets the same end,
even if the writer died before writing one.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from tg_gateway.dialects import (
    Answer,
    Background,
    KeptAnswer,
    KeptAnswers,
    StreamedAnswer,
    Waiting,
    Writer,
    join_output,
    server_sent_event,
)
from tg_gateway.dialects.responses.event_cutter import EventCutter
from tg_gateway.dialects.responses.events import describe_stream_error
from tg_gateway.dialects.responses.request import DIALECT
from tg_gateway.dialects.responses.request_body import InputItem, RequestBody
from tg_gateway.dialects.responses.response_draft import Birth, ResponseDraft
from tg_gateway.dialects.responses.response_object import ResponseError, ResponseStatus
from tg_schema import TgError, decode, encode
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
        response: as it is created.
        items: the whole conversation before its output.
        streamed: whether it has events.
    """

    response: msgspec.Raw
    items: tuple[InputItem, ...]
    streamed: bool


class WaitingRequest(msgspec.Struct, frozen=True):
    """The request of a response that waits for capacity, in the form on the bus.

    Attributes:
        body: the body of its request, with every item.
        earlier: how many items come from an earlier response.
        born: gives the restarted response the same ids.
        model: what the name of its model meant when it came (`FoundModel.name`).
        flow: the flow that had this model.
    """

    body: RequestBody
    earlier: int
    born: Birth
    model: str | None = None
    flow: str = ""


@dataclass(frozen=True, slots=True)
class WaitTerms:
    """The gateway's limits for responses that wait.

    Attributes:
        max_wait: maximum and default of the seconds that a response waits.
        attempts: default of how often a model may be asked.
    """

    max_wait: float
    attempts: int


class _Stated(msgspec.Struct, frozen=True):
    status: ResponseStatus


def make_background(
    draft: ResponseDraft,
    items: tuple[InputItem, ...],
    begin: bytes,
    start: Callable[[], bytes],
    headers: Mapping[str, str],
    *,
    waiting: Waiting | None = None,
) -> Background:
    """How the gateway keeps a response while it is made.

    Args:
        draft: the draft of the response.
        items: the whole conversation before its output.
        begin: its first events.
        start: makes the event that says a model works on it.
        headers: further headers of its answer.
        waiting: the terms on which it waits for capacity; None = it does not wait.
    """
    created = join_output(draft.encode())
    head = BackgroundHead(msgspec.Raw(created), items, draft.streamed)
    # Partials of functions, since closures cannot be pickled.
    answer = partial(
        _answer_first, response_id=draft.response.id, created=created, streamed=draft.streamed, headers=headers
    )
    return Background(
        draft.response.id,
        encode(head),
        begin,
        draft.streamed,
        partial(_finish, draft),
        answer,
        start=start,
        waiting=waiting,
    )


def make_waiting(request: WaitingRequest, items: tuple[InputItem, ...], terms: WaitTerms) -> Waiting:
    """The terms of a response that waits: the request to restart it, how long it waits, and its attempts."""
    # An earlier response may be gone by then, so its items are included; a text stays a text.
    body = request.body
    given = body.input if isinstance(body.input, str) else items
    request = msgspec.structs.replace(request, body=msgspec.structs.replace(body, input=given))
    seconds = min(body.max_wait or terms.max_wait, terms.max_wait)
    return Waiting(DIALECT, encode(request), seconds, body.max_attempts or terms.attempts)


def _finish(draft: ResponseDraft, failure: TgError | None, *, cancelled: bool) -> bytes:
    """The end that is kept."""
    if failure is not None:
        draft.close(failure, cancelled=cancelled)
    return join_output(draft.encode())


def _answer_first(
    kept: KeptAnswers, *, response_id: str, created: bytes, streamed: bool, headers: Mapping[str, str]
) -> Answer | StreamedAnswer:
    """The first answer, to the client that has asked."""
    return stream_events(kept, response_id, -1, headers) if streamed else Answer(created, headers=headers)


def show_response(answer: KeptAnswer, head: BackgroundHead) -> bytes:
    """The response as it stands."""
    if answer.outcome == "ended":
        return answer.end
    if answer.outcome == "running" and not answer.begun:
        return bytes(head.response)
    status = {"running": "in_progress", "cancelled": "cancelled"}.get(answer.outcome, "failed")
    fields = decode(dict[str, msgspec.Raw], head.response)
    return encode(fields | {"status": status, "error": _FAILURES.get(answer.outcome)})


def read_status(response: bytes) -> ResponseStatus:
    """The status that a response says."""
    return decode(_Stated, response).status


def stream_events(kept: KeptAnswers, response_id: str, after: int, headers: Mapping[str, str]) -> StreamedAnswer:
    """The events with numbers over `after`, including later ones. Ends orderly, however the response ended.

    The last event is `error` if the log cannot be read any further, or the end of a silent writer cannot be appended.
    """
    # The log's parts are cut at any byte; a reader that goes on in the middle needs whole events.
    cutter = EventCutter(after)
    parts, fail = _follow_events(kept, response_id, cutter), partial(_make_error_event, cutter)
    return StreamedAnswer(parts, Writer.content_type, {**Writer.headers, **headers}, Writer.keep_alive, fail)


def _make_error_event(cutter: EventCutter, error: TgError) -> bytes:
    """Why the events stop here. It says nothing about the state of the response."""
    # The number of the event before it: its reader resumes after that event.
    data = b'%b,"sequence_number":%d}' % (encode(describe_stream_error(error))[:-1], cutter.last)
    return server_sent_event(data, b"error")


async def _follow_events(kept: KeptAnswers, response_id: str, cutter: EventCutter) -> AsyncGenerator[bytes, None]:
    async with aclosing(kept.follow(response_id)) as steps:
        async for step in steps:
            if isinstance(step, KeptAnswer) and step.cut:
                raise TooLarge(EVENTS_CUT)
            if isinstance(step, KeptAnswer):
                # The gateway that wrote the log may have died within an event.
                cutter.drop_rest()
            piece = step if isinstance(step, bytes) else _make_last_event(step, cutter.number)
            # The HTTP head leaves with the first bytes, and the next event may take long.
            if data := cutter.add(piece) if piece else Writer.keep_alive:
                yield data


def _make_last_event(answer: KeptAnswer, number: int) -> bytes:
    response = show_response(answer, decode(BackgroundHead, answer.head or b""))
    name = _LAST.get(read_status(response), b"response.failed")
    data = b'{"type":"%b","response":%b,"sequence_number":%d}' % (name, response, number)
    return server_sent_event(data, name)
