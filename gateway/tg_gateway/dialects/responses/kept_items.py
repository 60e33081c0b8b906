"""Items of a kept conversation -> pages of `GET /v1/responses/{id}/input_items`, and the items that references name.

The id of an item has that of its response in it, so a reference can be followed without `previous_response_id`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from tg_gateway.dialects import InvalidParameter, KeptAnswers, pages
from tg_gateway.dialects.responses.kept_response import KeptOutput, recall
from tg_gateway.dialects.responses.request_body import REFERENCE, InputItem
from tg_schema import decode, encode
from tg_schema.errors import NotFound


class PageQuery(msgspec.Struct, frozen=True):
    """The parameters of a page; `after` is the id of an item."""

    order: Literal["asc", "desc"] = "desc"
    limit: Annotated[int, msgspec.Meta(ge=1, le=pages.MAX_PAGE)] = pages.DEFAULT_PAGE
    after: str | msgspec.UnsetType = msgspec.UNSET


ItemPage = pages.Page[dict[str, Any]]


def encode_page(items: tuple[InputItem, ...], response_id: str, query: Mapping[str, str]) -> bytes:
    """One page: `limit` items after the item `after`, the newest first unless `order` is `asc`.

    Raises:
        InvalidParameter: a parameter is wrong.
    """
    listed = [_show(item, make_item_id(item, response_id, index)) for index, item in enumerate(items)]
    listed.reverse()
    return encode(pages.find_page(listed, [item["id"] for item in listed], query))


def make_item_id(item: InputItem, response_id: str, index: int) -> str:
    """The id for an input item that came without one; no output item of the response has it."""
    return f"{_PREFIXES.get(item.type or 'message', 'item')}_{response_id.partition('_')[2]}_{index:04x}"


def _show(item: InputItem, item_id: str) -> dict[str, Any]:
    """The item, with an id of ours if it has none. A message has its content as parts, as the API always shows it."""
    shown = {name: value for name, value in msgspec.to_builtins(item).items() if value is not None}
    shown["type"] = item.type or "message"
    if isinstance(item.content, str):
        part = "output_text" if item.role == "assistant" else "input_text"
        shown["content"] = [{"type": part, "text": item.content}]
    for name in ("content", "summary"):
        if name in shown:
            shown[name] = [_show_part(part) for part in shown[name]]
    return {"id": item_id, "status": "completed", **shown}


def _show_part(part: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in part.items() if value is not None}
    if part["type"] == "output_text":
        shown |= {"annotations": [], "logprobs": []}
    if part["type"] == "input_image":
        shown.setdefault("detail", "auto")
    return shown


_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "reasoning": "rs",
    "compaction": "cmp",
}


MAX_RESPONSES: Final = 16
"""Responses that are read for the references of one request; each has the conversation before it too."""
_ITEM_ID: Final = re.compile(r"[a-z]{1,8}_([0-9a-f]{32})", re.ASCII)


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
    """The items of a request, each reference replaced by the item to which it refers.

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
    """The items of a kept response, its input and its output, by their ids; empty if the response is not kept."""
    try:
        response = await recall(kept, response_id)
    except NotFound:
        return {}
    ids = [item.id or make_item_id(item, response_id, index) for index, item in enumerate(response.items)]
    # With its id, later requests can refer to an item of the input again.
    named = {name: replace(item, id=name) for name, item in zip(ids, response.items, strict=True)}
    return named | {item.id: item for item in decode(KeptOutput, response.response).output if item.id is not None}
