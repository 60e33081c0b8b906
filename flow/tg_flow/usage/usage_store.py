"""Records of usage -> a store of hourly sums -> rows: the interface of all stores, and the SQL that they share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import astuple

from tg_flow.usage.period import HOUR_SECONDS, LAST_SECOND
from tg_schema.usage_record import UsageRecord
from tg_schema.usage_report import USAGE_SUMS, UsageRow

VERSION: Final = 1
"""Of the tables."""
KNOWN_SECONDS: Final = 48 * 3600
"""How long a record is remembered, so that a copy of it does not count."""
KEPT_SECONDS: Final = 400 * 24 * 3600
"""How long sums are kept: a client may make a row of each call, by a new `user`."""
MAX_NAME_CHARACTERS: Final = 256
"""Of a name that others choose, such as a customer's."""
NAMES: Final = ("key", "customer", "tags", "door", "flow", "model", "provider", "upstream_model", "outcome")
_TIME_CHARACTERS: Final = {"hour": 17, "day": 10, "month": 7}
"""Of an hour's text, such as 2026-11-01T13:00Z."""


class UsageStore(ABC):
    """Hourly sums, and which records they contain. Its methods block, and may be called in any thread.

    Attributes:
        lasting: whether the sums outlive the process.
    """

    lasting = True

    def open(self) -> None:  # noqa: B027 - what opens nothing needs none
        """Get ready.

        Raises:
            Unavailable: it cannot be opened, and waiting does not help.
        """

    def close(self) -> None:  # noqa: B027 - the same
        """Close it, after what is being written."""

    @abstractmethod
    def add(self, records: Sequence[tuple[UsageRecord, int | None]]) -> None:
        """Add records with their costs to the sums: all or none, and each once, however often it comes.

        Raises:
            Unavailable: nothing is known to be written.
        """

    @abstractmethod
    def find(self, by: tuple[str, ...], since: int, until: int, key: str | None, most: int) -> list[UsageRow]:
        """The sums of a period, ordered by the fields `by`, which are of `USAGE_FIELDS`.

        Args:
            by: a row for each combination of these.
            since: the first hour, in seconds since the epoch.
            until: the first hour after it.
            key: only this key's; None = all.
            most: rows.

        Raises:
            Unavailable: it cannot be read.
        """


def identify(record: UsageRecord, now: int) -> tuple[Any, ...]:
    """What tells a record from all others, and when it came."""
    # The beginning too: a peer that numbers its requests may use a number again.
    return (_shorten(record.stream), record.attempt, record.call, record.began_at, now)


def make_row(record: UsageRecord, cost: int | None, now: int) -> tuple[Any, ...]:
    """The hour, the `NAMES` and the summands, as `USAGE_SUMS`, of one record."""
    usage, payer = record.usage, record.payer
    ended = record.ended_at // 1000
    hour = (ended if 0 < ended < LAST_SECOND else now) // HOUR_SECONDS * HOUR_SECONDS
    names = (
        *(payer.key, payer.customer, ",".join(payer.tags), record.door, record.flow),
        *(record.model, record.provider, record.upstream_model, record.outcome),
    )
    answers = record.operation == "completion"
    counted = usage.in_token is not None and (usage.out_token is not None or not answers)
    estimated = (usage.in_token or 0) + (usage.out_token or 0) if record.estimated else 0
    tokens = astuple(usage)
    return (hour, *map(_shorten, names), 1, *tokens, estimated, int(not counted), cost, int(cost is None))


def add_sums(table: str, columns: str, source: str, identity: str) -> str:
    """SQL that adds the rows of `source` to the sums of the same `identity`: columns that are unique together.

    `columns` are those before the sums. All are named, since a count that came later is the table's last column.
    """
    # A sum of tokens is null until one is known: `a + b` is null if either is.
    sums = ", ".join(
        f"{name} = coalesce(kept.{name} + excluded.{name}, kept.{name}, excluded.{name})" for name in USAGE_SUMS
    )
    names = ", ".join((columns, *USAGE_SUMS))
    return f"INSERT INTO {table} AS kept ({names}) {source} ON CONFLICT ({identity}) DO UPDATE SET {sums}"


def select_sums(table: str, by: tuple[str, ...], hour: str) -> str:
    """SQL for the rows of `find`, whose other arguments are $1 to $4.

    It is made of our own names alone; what a client sent is bound.

    Args:
        table: that of the sums.
        by: as for `find`.
        hour: SQL for the text of an hour, such as 2026-11-01T13:00Z.
    """
    times = {name: f"substr({hour}, 1, {length})" for name, length in _TIME_CHARACTERS.items()}
    fields = [times.get(name, f'"{name}"') for name in by]
    sums = [f"CAST(sum({name}) AS BIGINT)" for name in USAGE_SUMS]
    order = ", ".join(str(place + 1) for place in range(len(by)))
    return (
        f"SELECT {', '.join((*fields, *sums))} FROM {table} WHERE hour >= $1 AND hour < $2 AND key = coalesce($3, key) "  # noqa: S608
        + (f"GROUP BY {order} ORDER BY {order} " if by else "")
        + "LIMIT $4"
    )


def read_rows(by: tuple[str, ...], found: Sequence[Sequence[Any]]) -> list[UsageRow]:
    """What `select_sums` has found."""
    # Without `by` there is one row, even of nothing.
    return [_read_row(by, row) for row in found if row[len(by)]]


def _read_row(by: tuple[str, ...], row: Sequence[Any]) -> UsageRow:
    names: dict[str, Any] = {name: value or None for name, value in zip(by, row, strict=False)}
    return UsageRow(**names, **dict(zip(USAGE_SUMS, row[len(by) :], strict=True)))


def _shorten(name: str | None) -> str:
    # A NUL is no text for PostgreSQL.
    return (name or "").replace("\0", "\ufffd")[:MAX_NAME_CHARACTERS]
