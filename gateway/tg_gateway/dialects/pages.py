"""List -> the page of it that a query asks for: items of a conversation, files, batches."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Generic, TypeVar

import msgspec

from tg_gateway.dialects.field_names import InvalidParameter

Item = TypeVar("Item")

DEFAULT_PAGE: Final = 20
MAX_PAGE: Final = 100
"""How many items a list shows at a time (OpenAI's number), unless its door sets another one."""
_WRONG: Final = "invalid_value"


class PageQuery(msgspec.Struct, frozen=True):
    """Which part of a list: `after` an id."""

    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE


class Page(msgspec.Struct, Generic[Item], frozen=True, tag_field="object", tag="list"):
    """Items of a list, the newest first unless the client wants the oldest first."""

    data: tuple[Item, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool


def find_page(
    items: Sequence[Item],
    ids: Sequence[str],
    query: Mapping[str, str],
    *,
    most: int = MAX_PAGE,
    default: int = DEFAULT_PAGE,
) -> Page[Item]:
    """`limit` of these items, the newest first: after the id `after` or `after_id`, or before the id `before_id`.

    With `order` "asc" the list is reversed first. `has_more` is about the items further on in the same direction.

    Raises:
        InvalidParameter: a parameter is wrong.
    """
    limit, order = query.get("limit", str(default)), query.get("order", "desc")
    after, before = query.get("after", query.get("after_id")), query.get("before_id")
    # The length before the number: `int` takes long for thousands of digits.
    countable = limit.isdecimal() and len(limit) <= len(str(most)) and 1 <= int(limit) <= most
    InvalidParameter.refuse_first(
        (not countable, "limit", _WRONG, f"limit must be a number from 1 to {most}"),
        (order not in {"asc", "desc"}, "order", _WRONG, "order must be asc or desc"),
        (after not in {None, *ids}, "after", _WRONG, "after must be the id of an item of the list"),
        (before not in {None, *ids}, "before_id", _WRONG, "before_id must be the id of an item of the list"),
        (None not in {after, before}, "before_id", _WRONG, "name an item to list behind or one to list before"),
    )
    if order == "asc":
        items, ids = items[::-1], ids[::-1]
    if before is None:
        start = 0 if after is None else ids.index(after) + 1
        found = slice(start, start + int(limit))
    else:
        end = ids.index(before)
        found = slice(max(end - int(limit), 0), end)
    named, more = ids[found], found.stop < len(ids) if before is None else found.start > 0
    return Page(tuple(items[found]), next(iter(named), None), next(reversed(named), None), more)
