"""References to items -> the items, of responses that are kept.

The id of an item has that of its response in it, so a reference can be followed without `previous_response_id`.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from tg_gateway.dialects import InvalidParameter, KeptAnswers
from tg_gateway.dialects.responses.input_list import make_item_id
from tg_gateway.dialects.responses.kept_response import recall
from tg_gateway.dialects.responses.request_body import REFERENCE, InputItem
from tg_schema import decode
from tg_schema.errors import NotFound

MAX_RESPONSES: Final = 16
"""Responses that are read for the references of one request; each has the conversation before it too."""
_ITEM_ID: Final = re.compile(r"[a-z]{1,8}_([0-9a-f]{32})", re.ASCII)


class _Output(msgspec.Struct, frozen=True):
    output: tuple[InputItem, ...]


def refers(items: Sequence[InputItem]) -> bool:
    """Whether one of the items is a reference."""
    return any(item.type == REFERENCE for item in items)


def drop_repeated(items: Sequence[InputItem], earlier: Sequence[InputItem]) -> tuple[InputItem, ...]:
    """The items, without references to items that the conversation before them already has."""
    known = {item.id for item in earlier if item.id is not None}
    return tuple(item for item in items if item.type != REFERENCE or item.id not in known)


async def resolve_references(
    kept: KeptAnswers, items: Sequence[InputItem], earlier: Sequence[InputItem]
) -> tuple[InputItem, ...]:
    """The items of a request, each reference replaced by what it names.

    Raises:
        InvalidParameter: a reference names no item that is kept for the key that asks, or one a second time.
    """
    wanted = drop_repeated(items, earlier)
    places: dict[str, str] = {}
    for number, item in enumerate(wanted):
        if item.type == REFERENCE:
            place = f"input[{number}].id"
            if places.setdefault(item.id or "", place) != place:
                # Otherwise each reference of a few bytes could grow to megabytes.
                raise InvalidParameter("an item is referred to once: leave out the repeated references", place)
    found = await _find_items(kept, places)
    return tuple(found[item.id or ""] if item.type == REFERENCE else item for item in wanted)


async def _find_items(kept: KeptAnswers, places: dict[str, str]) -> dict[str, InputItem]:
    """Items by their ids, at least those whose places in the request are given."""
    found: dict[str, InputItem] = {}
    read: set[str] = set()
    # Read the latest first: a response includes the items before it, so one read is enough for a conversation.
    for item_id, place in reversed(places.items()):
        match = _ITEM_ID.match(item_id)
        if item_id not in found and match is not None and match[1] not in read:
            if len(read) == MAX_RESPONSES:
                raise InvalidParameter(
                    f"the items are of more than {MAX_RESPONSES} responses: send some of them themselves", place
                )
            read.add(match[1])
            found = await _list_named(kept, f"resp_{match[1]}") | found
        if item_id not in found:
            raise InvalidParameter(
                "no item of this id is kept for your key: send the item itself, or previous_response_id",
                place,
                "not_found",
            )
    return found


async def _list_named(kept: KeptAnswers, response_id: str) -> dict[str, InputItem]:
    """The items of a response that is kept, its input and its output, by their ids; none where it is not kept."""
    try:
        response = await recall(kept, response_id)
    except NotFound:
        return {}
    ids = [item.id or make_item_id(item, response_id, index) for index, item in enumerate(response.items)]
    # With its id, an item of the input can be named again in what comes after.
    named = {name: replace(item, id=name) for name, item in zip(ids, response.items, strict=True)}
    return named | {item.id: item for item in decode(_Output, response.response).output if item.id is not None}
