"""A response that has ended -> what is kept of it -> the response, its items and its events, for later requests."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tg_gateway.dialects import MAX_KEPT_BYTES, Keep, KeptAnswers, server_sent_event
from tg_gateway.dialects.openai import InvalidParameter
from tg_gateway.dialects.responses.request_body import InputItem
from tg_gateway.dialects.responses.response_draft import ResponseDraft
from tg_schema import decode, encode
from tg_schema.errors import NotFound

NOT_FOUND: Final = "previous_response_not_found"
"""OpenAI's code for a response that is not kept."""
MAX_ITEM_BYTES: Final = 3 * MAX_KEPT_BYTES // 8
"""Of the conversation before a response that is kept."""
MAX_EVENT_BYTES: Final = 3 * MAX_KEPT_BYTES // 8
"""Of the events of one response; of one with more, the response alone is kept."""


class KeptResponse(msgspec.Struct, frozen=True):
    """What is kept.

    Attributes:
        response: as it ended.
        items: the whole conversation before its output.
        events: of a response that was streamed; the number of each is its place.
    """

    response: msgspec.Raw
    items: tuple[InputItem, ...]
    events: tuple[msgspec.Raw, ...] | None = None


class _Output(msgspec.Struct, frozen=True):
    output: tuple[InputItem, ...]


class _Typed(msgspec.Struct, frozen=True):
    type: str


def make_keep(draft: ResponseDraft, items: tuple[InputItem, ...], events: Sequence[bytes]) -> Keep:
    """How the gateway keeps a response.

    Args:
        draft: of the response.
        items: the whole conversation before its output.
        events: filled until it has ended: the JSON of its events; none where they are not kept.

    Raises:
        InvalidParameter: the conversation is too large to be kept.
    """
    size = len(encode(items))
    if size > MAX_ITEM_BYTES:
        raise InvalidParameter(
            f"the conversation has {size} bytes, and one that is kept at most {MAX_ITEM_BYTES}: send store: false",
            "store",
        )

    def make() -> bytes:
        told = tuple(msgspec.Raw(event) for event in events) or None
        return encode(KeptResponse(msgspec.Raw(encode(draft.response)), items, told))

    return Keep(draft.response.id, make)


async def recall(kept: KeptAnswers, response_id: str) -> KeptResponse:
    """A response of the key that asks.

    Raises:
        NotFound: there is none of this id.
    """
    try:
        return decode(KeptResponse, await kept.read(response_id))
    except NotFound:
        raise NotFound(
            "no response of this id is kept for your key: only those with store: true are, for a day"
        ) from None


async def recall_items(kept: KeptAnswers, response_id: str) -> tuple[InputItem, ...]:
    """The conversation up to the end of a response.

    Raises:
        InvalidParameter: it is not kept.
    """
    try:
        found = await recall(kept, response_id)
    except NotFound as error:
        raise InvalidParameter(
            f"{error.message}; otherwise send the earlier items in input", "previous_response_id", NOT_FOUND
        ) from None
    return (*found.items, *decode(_Output, found.response).output)


def repeat_events(found: KeptResponse, query: Mapping[str, str]) -> bytes:
    """The events with numbers over `starting_after`, as they were sent.

    Raises:
        InvalidParameter: the response was not streamed, its events were too many, or the number is none.
    """
    if found.events is None:
        raise InvalidParameter(
            "the events of this response are not kept: it was not streamed, or is too long; get it without stream",
            "stream",
        )
    after = query.get("starting_after", "-1")
    if not after.removeprefix("-").isdecimal():
        raise InvalidParameter("starting_after must be the number of an event", "starting_after", "invalid_value")
    rest = found.events[max(0, int(after[:12]) + 1) :]
    return b"".join([server_sent_event(bytes(event), decode(_Typed, event).type.encode()) for event in rest])
