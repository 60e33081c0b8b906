"""Items of a kept conversation -> the pages of `GET /v1/responses/{id}/input_items`."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from tg_gateway.dialects import InvalidParameter
from tg_gateway.dialects.responses.request_body import InputItem
from tg_schema import encode

DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 100
"""Items of a page (OpenAI's numbers)."""


class PageQuery(msgspec.Struct, frozen=True):
    """The parameters of a page; `after` is the id of an item."""

    order: Literal["asc", "desc"] = "desc"
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT
    after: str | msgspec.UnsetType = msgspec.UNSET


class ItemPage(msgspec.Struct, frozen=True):
    """One page of items."""

    data: tuple[dict[str, Any], ...]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


def encode_page(items: tuple[InputItem, ...], response_id: str, query: Mapping[str, str]) -> bytes:
    """One page: the newest items first, unless `order` is `asc`; `limit` of them, those behind the item `after`.

    Raises:
        InvalidParameter: a parameter is wrong.
    """
    listed = [_show(item, make_item_id(item, response_id, index)) for index, item in enumerate(items)]
    order, limit = query.get("order", "desc"), query.get("limit", str(DEFAULT_LIMIT))
    if order not in {"asc", "desc"}:
        raise InvalidParameter("order must be asc or desc", "order", "invalid_value")
    # The length before the number: `int` takes long for thousands of digits.
    if not limit.isdecimal() or len(limit) > len(str(MAX_LIMIT)) or not 1 <= int(limit) <= MAX_LIMIT:
        raise InvalidParameter(f"limit must be a number from 1 to {MAX_LIMIT}", "limit", "invalid_value")
    if order == "desc":
        listed.reverse()
    if (after := query.get("after")) is not None:
        places = [place for place, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise InvalidParameter("after must be the id of an item of this response", "after", "invalid_value")
        listed = listed[places[0] + 1 :]
    page = tuple(listed[: int(limit)])
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return encode(ItemPage(page, first, last, len(listed) > len(page)))


def make_item_id(item: InputItem, response_id: str, index: int) -> str:
    """The id of an input item that came without one; no output item of the response has it."""
    return f"{_PREFIXES.get(item.type or 'message', 'item')}_{response_id.partition('_')[2]}_{index:04x}"


def _show(item: InputItem, item_id: str) -> dict[str, Any]:
    """The item with its id, or one of ours; a message with its content as parts, as the API always shows it."""
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
