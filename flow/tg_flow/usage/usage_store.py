"""Records of usage -> a store of hourly sums -> rows: the interface of all stores, and the SQL that they share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import astuple

from tg_flow.usage.period import HOUR_SECONDS, LAST_SECOND
from tg_schema.usage_record import UsageRecord
from tg_schema.usage_report import USAGE_SUMS, UsageRow

VERSION: Final = 1
"""Version of the tables."""
KNOWN_SECONDS: Final = 48 * 3600
"""How long a record is remembered, so that a second copy of it does not count."""
KEPT_SECONDS: Final = 400 * 24 * 3600
"""How long sums are kept. A limit is needed: by sending a new `user` with each call, a client adds a row each time."""
MAX_NAME_CHARACTERS: Final = 256
"""Most characters of a name that others choose, such as a customer's."""
NAMES: Final = ("key", "customer", "tags", "door", "flow", "model", "provider", "upstream_model", "outcome")
_TIME_CHARACTERS: Final = {"hour": 17, "day": 10, "month": 7}
"""Length of the beginning of an hour's text, such as 2026-11-01T13:00Z, that names each unit."""


class UsageStore(ABC):
    """Hourly sums, and the identities of the records in them. The methods block; any thread may call them.

    Attributes:
        lasting: whether the sums outlive the process.
    """

    lasting = True

    def open(self) -> None:  # noqa: B027 - a store may have nothing to open
        """Open the store.

        Raises:
            Unavailable: the store cannot be opened, and waiting does not help.
        """

    def close(self) -> None:  # noqa: B027 - a store may have nothing to close
        """Close the store, after pending writes."""

    @abstractmethod
    def add(self, records: Sequence[tuple[UsageRecord, int | None]]) -> None:
        """Add records with their costs to the sums: all or none, and each record once, however often it arrives.

        Raises:
            Unavailable: it is not known whether anything was written.
        """

    @abstractmethod
    def find(self, by: tuple[str, ...], since: int, until: int, key: str | None, most: int) -> list[UsageRow]:
        """The sums of a period, ordered by the fields `by`, which are names of `USAGE_FIELDS`.

        Args:
            by: fields; there is one row for each combination of their values.
            since: the first hour, in seconds since the epoch.
            until: the first hour after it.
            key: sum only this key's records; None = all.
            most: most rows to return.

        Raises:
            Unavailable: the store cannot be read.
        """


def identify(record: UsageRecord, now: int) -> tuple[Any, ...]:
    """What distinguishes a record from all others, and when it arrived."""
    # Include the beginning: a peer that numbers its requests may use a number again.
    return (_shorten(record.stream), record.attempt, record.call, record.began_at, now)


def make_row(record: UsageRecord, cost: int | None, now: int) -> tuple[Any, ...]:
    """The hour, the `NAMES` and the summands (see `USAGE_SUMS`) of one record."""
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
    """SQL that adds the rows of `source` to the sums with the same `identity`, which is a unique set of columns.

    `columns` are those before the sums. All are named, because a sum that was added later is the table's last column.
    """
    # A sum of tokens is null until a count is known, and `a + b` is null if either is.
    sums = ", ".join(
        f"{name} = coalesce(kept.{name} + excluded.{name}, kept.{name}, excluded.{name})" for name in USAGE_SUMS
    )
    names = ", ".join((columns, *USAGE_SUMS))
    return f"INSERT INTO {table} AS kept ({names}) {source} ON CONFLICT ({identity}) DO UPDATE SET {sums}"


def select_sums(table: str, by: tuple[str, ...], hour: str) -> str:
    """SQL for the rows of `find`; the other arguments of `find` are its parameters $1 to $4.

    It contains only names of our own; values that a client sent are bound as parameters.

    Args:
        table: the table of the sums.
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
    """The rows that `select_sums` has found."""
    # Without `by`, SQL returns one row even if there is nothing to sum.
    return [_read_row(by, row) for row in found if row[len(by)]]


def _read_row(by: tuple[str, ...], row: Sequence[Any]) -> UsageRow:
    names: dict[str, Any] = {name: value or None for name, value in zip(by, row, strict=False)}
    return UsageRow(**names, **dict(zip(USAGE_SUMS, row[len(by) :], strict=True)))


def _shorten(name: str | None) -> str:
    # PostgreSQL does not allow NUL in a text.
    return (name or "").replace("\0", "\ufffd")[:MAX_NAME_CHARACTERS]
