"""A mount, its dialect's description of it, and the statuses of its refusals, which the dialect itself computes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tg_gateway.dialects import ASKING, Call, Catalogue, Description, Mount
from tg_schema import TgError, encode
from tg_schema.errors import AccessDenied, BadRequest, Internal, RateLimited, TooLarge, Unauthorized, Unavailable


class Row(NamedTuple):
    """A described mount."""

    mount: Mount
    descriptions: tuple[Description, ...]

    @property
    def asks(self) -> bool:
        """Whether a service is asked, whose answer may be kept."""
        return self.mount.method == "POST" and any(each.raises == ASKING for each in self.descriptions)


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


_OF_HTTP: Final[tuple[tuple[type[TgError], int], ...]] = (
    *((BadRequest, status) for status in (400, 403, 408, 415, 417)),
    (TooLarge, 413),
    (AccessDenied, 403),
)
"""The gateway's own refusals: of foreign origins and hosts, and of bodies that come too slowly or are unreadable."""
_OF_KEYS: Final[tuple[tuple[type[TgError], int], ...]] = ((Unauthorized, 401), (RateLimited, 429))
_OF_SOCKETS: Final[tuple[tuple[type[TgError], int], ...]] = ((Unauthorized, 401), (Unavailable, 503))
_NOTHING_SERVED: Final = Catalogue((), lambda queue: (), {})


def list_refusals(row: Row) -> Iterator[int]:
    """The statuses with which a mount's requests are refused; 200 where the refusal is an event."""
    mount = row.mount
    yield Internal.status
    for kind, status in _OF_HTTP + (() if mount.keyless else _OF_KEYS) + (_OF_SOCKETS if mount.socket else ()):
        yield _refuse(mount, kind, status, b"", {})
    if row.asks:
        yield _refuse(mount, BadRequest, 409, b"", {})
    for description in row.descriptions:
        bodies = [encode(example) for example in description.examples.values()] or [b""]
        for kind in description.raises:
            for body in bodies:
                yield _refuse(mount, kind, kind.status, body, description.path)


def _refuse(mount: Mount, kind: type[TgError], status: int, body: bytes, path: Mapping[str, str]) -> int:
    call = Call(mount.operation, _NOTHING_SERVED, {}, path, {}, "", body)
    # The text does not matter: only the status is used.
    return mount.dialect.refuse(kind("any"), status, call).status
