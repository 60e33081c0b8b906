"""A mount and what its dialect says of it: what one operation of the OpenAPI document is made of."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tg_gateway.dialects import Description, Mount


class Row(NamedTuple):
    """A described mount."""

    mount: Mount
    descriptions: tuple[Description, ...]


def list_rows(mounts: Sequence[Mount]) -> tuple[Row, ...]:
    """The mounts that their dialects describe."""
    rows = (Row(mount, mount.dialect.describe(mount.operation)) for mount in mounts)
    return tuple(row for row in rows if row.descriptions)


def list_types(rows: Sequence[Row]) -> Iterator[Any]:
    """Every type that the descriptions name."""
    for description in (each for row in rows for each in row.descriptions):
        kinds = (description.body, description.answer, description.event, description.failure, description.query)
        for kind in (*kinds, *description.further.values(), *description.messages.values()):
            if kind is not None:
                yield kind
