"""A response that has ended -> its kept record -> the response, its items and its events, for later requests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from tg_gateway.dialects import (
    MAX_KEPT_BYTES,
    Answer,
    InvalidParameter,
    Keep,
    KeptAnswer,
    KeptAnswers,
    StreamedAnswer,
    Writer,
    join_output,
    server_sent_event,
)
from tg_gateway.dialects.responses.background_response import (
    BackgroundHead,
    read_status,
    show_response,
    stream_events,
)
from tg_gateway.dialects.responses.request_body import InputItem
from tg_gateway.dialects.responses.response_draft import RESPONSE_PREFIX, ResponseDraft
from tg_schema import decode, encode
from tg_schema.errors import NotFound

NOT_FOUND: Final = "previous_response_not_found"
"""OpenAI's code for a response that is not kept."""
MAX_ITEM_BYTES: Final = 3 * MAX_KEPT_BYTES // 8
"""The most bytes of the conversation before a kept response."""


class KeptResponse(msgspec.Struct, frozen=True):
    """The record of a kept response.

    Attributes:
        response: the response as it ended.
        items: the whole conversation before its output.
        events: the events of a response that was streamed; the number of each is its place.
    """

    response: msgspec.Raw
    items: tuple[InputItem, ...]
    events: tuple[msgspec.Raw, ...] | None = None


class FoundResponse(NamedTuple):
    """A kept response, as its API key can read it.

    Attributes:
        response: the current response.
        items: the whole conversation before its output.
        events: its events, if it was kept when it had ended.
        background: the head of a response in the background; None = it is not in the background.
        cut: for a response in the background: whether some of its events are missing.
    """

    response: bytes
    items: tuple[InputItem, ...]
    events: tuple[msgspec.Raw, ...] | None = None
    background: BackgroundHead | None = None
    cut: bool = False


class RetrieveQuery(msgspec.Struct, frozen=True):
    """The parameters of a retrieval; the events are those with numbers over `starting_after`."""

    stream: bool = False
    starting_after: int | msgspec.UnsetType = msgspec.UNSET


class DeletedResponse(msgspec.Struct, frozen=True):
    """The answer to a deletion."""

    id: str
    object: str = "response"
    deleted: bool = True


class KeptOutput(msgspec.Struct, frozen=True):
    """The items that a response has made."""

    output: tuple[InputItem, ...]


class _Typed(msgspec.Struct, frozen=True):
    type: str


def make_keep(draft: ResponseDraft, items: bytes, events: Sequence[bytes], *, optional: bool) -> Keep:
    """How the gateway keeps a response.

    Args:
        draft: the draft of the response.
        items: the whole conversation before its output, as `check_items` has passed it.
        events: the JSON of its events, filled until it has ended; empty if they are not kept.
        optional: whether the response is sent also if it cannot be kept.
    """
    # A partial and not a closure, so that it can be pickled.
    return Keep(draft.response.id, partial(_encode_record, draft, items, events), optional)


def _encode_record(draft: ResponseDraft, items: bytes, events: Sequence[bytes]) -> bytes:
    """The record that is kept of an ended response: a `KeptResponse` whose fields are already encoded."""
    listed = b"[%b]" % b",".join(events) if events else b"null"
    return b'{"response":%b,"items":%b,"events":%b}' % (join_output(draft.encode()), items, listed)


def check_items(items: tuple[InputItem, ...]) -> bytes:
    """The JSON of a conversation that is to be kept.

    Raises:
        InvalidParameter: the conversation is too large.
    """
    encoded = encode(items)
    if len(encoded) > MAX_ITEM_BYTES:
        raise InvalidParameter(
            f"the conversation has {len(encoded)} bytes, and one that is kept at most {MAX_ITEM_BYTES}: "
            "send less, or store: false without background",
            "store",
        )
    return encoded


async def recall(kept: KeptAnswers, response_id: str) -> FoundResponse:
    """A response of the key that asks.

    Raises:
        NotFound: there is no response with this id.
    """
    try:
        # What is kept under another name is no response, but a stream.
        return read_answer(await kept.read(response_id if response_id.startswith(RESPONSE_PREFIX) else ""))
    except NotFound:
        raise NotFound(
            "no response of this id is kept for your key: those with store: false are not, others for a day"
        ) from None


def read_answer(answer: KeptAnswer) -> FoundResponse:
    """The stored form of a response."""
    if answer.head is None:
        whole = decode(KeptResponse, answer.end)
        return FoundResponse(bytes(whole.response), whole.items, whole.events)
    head = decode(BackgroundHead, answer.head)
    response = show_response(answer, head)
    return FoundResponse(response, head.items, background=head, cut=answer.cut)


async def recall_items(kept: KeptAnswers, response_id: str) -> tuple[InputItem, ...]:
    """The conversation up to the end of a response.

    Raises:
        InvalidParameter: the response is not kept.
    """
    try:
        found = await recall(kept, response_id)
    except NotFound as error:
        raise InvalidParameter(
            f"{error.message}; otherwise send the earlier items in input", "previous_response_id", NOT_FOUND
        ) from None
    if (status := read_status(found.response)) not in {"completed", "incomplete"}:
        raise InvalidParameter(f"the response is {status}: go on from one that is completed", "previous_response_id")
    return (*found.items, *decode(KeptOutput, found.response).output)


def repeat_events(
    kept: KeptAnswers, response_id: str, found: FoundResponse, query: Mapping[str, str]
) -> Answer | StreamedAnswer:
    """The events with numbers over `starting_after`, as they were sent, and those still to come.

    Raises:
        InvalidParameter: the response was not streamed, had too many events, or the number is malformed.
    """
    head = found.background
    if found.cut or not (found.events if head is None else head.streamed):
        raise InvalidParameter(
            "the events of this response are not kept: it was not streamed with store: true, or is too long; get it "
            "without stream",
            "stream",
        )
    after = query.get("starting_after", "-1")
    if not after.removeprefix("-").isdecimal():
        raise InvalidParameter("starting_after must be the number of an event", "starting_after", "invalid_value")
    number = max(-1, int(after[:12]))
    if head is not None:
        return stream_events(kept, response_id, head, number, {})
    events = b"".join(_frame_events((found.events or ())[number + 1 :]))
    return Answer(events, content_type=Writer.content_type)


def _frame_events(events: Iterable[msgspec.Raw]) -> Iterator[bytes]:
    for event in events:
        yield server_sent_event(bytes(event), decode(_Typed, event).type.encode())
