"""Records of usage -> hourly sums in SQLite -> rows. A database of another kind would have the same four methods."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tg_flow.usage.period import HOUR_SECONDS, LAST_SECOND
from tg_schema.errors import Unavailable
from tg_schema.usage_record import UsageRecord
from tg_schema.usage_report import UsageRow

VERSION: Final = 1
"""Of the tables."""
KNOWN_SECONDS: Final = 48 * 3600
"""How long a record is remembered, so that a copy of it does not count."""
KEPT_SECONDS: Final = 400 * 24 * 3600
"""How long sums are kept: a client may make a row of each call, by a new `user`."""
LOCKED_SECONDS: Final = 5.0
MAX_NAME_CHARACTERS: Final = 256
"""Of a name that others choose, such as a customer's."""

_NAMES: Final = ("key", "customer", "tags", "door", "flow", "model", "provider", "upstream_model", "outcome")
_SUMS: Final = (
    *("calls", "in_token", "out_token", "cached_token", "reasoning_token", "cache_write_token"),
    *("estimated_token", "uncounted_calls", "cost", "unpriced_calls"),
)
_KEYS: Final = ", ".join(f'"{name}"' for name in ("hour", *_NAMES))
_TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS known (
    stream TEXT, attempt INTEGER, call INTEGER, began INTEGER, since INTEGER,
    PRIMARY KEY (stream, attempt, call, began)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS known_since ON known (since);
CREATE TABLE IF NOT EXISTS hourly (
    {_KEYS}, {", ".join(f"{name} INTEGER" for name in _SUMS)}, PRIMARY KEY ({_KEYS})
) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""
_KNOW: Final = "INSERT OR IGNORE INTO known VALUES (?, ?, ?, ?, ?)"
# A sum of tokens is null until one is known: `a + b` is null if either is.
_ADD: Final = (
    f"INSERT INTO hourly VALUES ({', '.join('?' * (1 + len(_NAMES) + len(_SUMS)))}) ON CONFLICT DO UPDATE SET "  # noqa: S608
    + ", ".join(f"{name} = coalesce({name} + excluded.{name}, {name}, excluded.{name})" for name in _SUMS)
)
_TIMES: Final = {"hour": "%Y-%m-%dT%H:00Z", "day": "%Y-%m-%d", "month": "%Y-%m"}


class UsageDatabase:
    """Hourly sums, and which records they contain. Its methods block, and may be called in any thread.

    Args:
        file: where they are; None = in memory.
        clock: the time in seconds since the epoch.
        locked_seconds: how long another process may hold the file.

    Attributes:
        lasting: whether the sums outlive the process.
    """

    def __init__(
        self,
        file: Path | None,
        *,
        clock: Callable[[], float] = time.time,
        locked_seconds: float = LOCKED_SECONDS,
    ) -> None:
        self.lasting = file is not None
        self._place = str(file or ":memory:")
        self._clock = clock
        self._locked_seconds = locked_seconds
        self._one_at_a_time = threading.Lock()
        self._pruned_at = 0

    def open(self) -> None:
        """Open the file, which is made if it is not there.

        Raises:
            Unavailable: it cannot be opened, or a newer version has made it.
        """
        with self._reporting("opened"):
            self._connection = sqlite3.connect(
                self._place, timeout=self._locked_seconds, isolation_level=None, check_same_thread=False
            )
            with ExitStack() as undo:
                undo.callback(self._connection.close)
                self._prepare()
                undo.pop_all()

    def close(self) -> None:
        """Close it, after what is being written."""
        with self._one_at_a_time:
            self._connection.close()

    def add(self, records: Sequence[tuple[UsageRecord, int | None]]) -> None:
        """Add records with their costs to the sums: all or none, and each once, however often it comes.

        Raises:
            Unavailable: the file took nothing.
        """
        now = int(self._clock())
        with self._reporting("written"), self._one_at_a_time, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for record, cost in records:
                # The beginning too: a peer that numbers its requests may use a number again.
                known = (record.stream, record.attempt, record.call, record.began_at, now)
                if self._connection.execute(_KNOW, known).rowcount:
                    self._connection.execute(_ADD, _row_of(record, cost, now))
            if now - self._pruned_at > HOUR_SECONDS:
                self._connection.execute("DELETE FROM known WHERE since < ?", (now - KNOWN_SECONDS,))
                self._connection.execute("DELETE FROM hourly WHERE hour < ?", (now - KEPT_SECONDS,))
                self._pruned_at = now

    def find(self, by: tuple[str, ...], since: int, until: int, key: str | None, most: int) -> list[UsageRow]:
        """The sums of a period, ordered by the fields `by`, which are of `USAGE_FIELDS`.

        Args:
            by: a row for each combination of these.
            since: the first hour, in seconds since the epoch.
            until: the first hour after it.
            key: only this key's; None = all.
            most: rows.

        Raises:
            Unavailable: the file cannot be read.
        """
        fields = [f"strftime('{_TIMES[name]}', hour, 'unixepoch')" if name in _TIMES else f'"{name}"' for name in by]
        order = ", ".join(str(place + 1) for place in range(len(by)))
        sums = [f"sum({name})" for name in _SUMS]
        # Made of our own names alone; what a client sent is bound.
        query = (
            f"SELECT {', '.join((*fields, *sums))} FROM hourly WHERE hour >= ? AND hour < ? AND (? IS NULL OR key = ?) "  # noqa: S608
            + (f"GROUP BY {order} ORDER BY {order} " if by else "")
            + "LIMIT ?"
        )
        with self._reporting("read"), self._one_at_a_time:
            found = self._connection.execute(query, (since, until, key, key, most)).fetchall()
        # Without `by` there is one row, even of nothing.
        return [_answer(by, row) for row in found if row[len(by)]]

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        if self._connection.execute("PRAGMA user_version").fetchone()[0] > VERSION:
            raise Unavailable(f"{self._place} was written by a newer version; update this one, or name another file")
        self._connection.executescript(_TABLES)

    @contextmanager
    def _reporting(self, done: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorname", type(error).__name__)
            raise Unavailable(f"the usage database {self._place} cannot be {done}: {code}") from None


def _row_of(record: UsageRecord, cost: int | None, now: int) -> tuple[Any, ...]:
    """The hour, the names and the summands of one record."""
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
    tokens = (
        *(usage.in_token, usage.out_token, usage.cached_token),
        *(usage.reasoning_token, usage.cache_write_token),
    )
    shown = ((name or "")[:MAX_NAME_CHARACTERS] for name in names)
    return (hour, *shown, 1, *tokens, estimated, not counted, cost, cost is None)


def _answer(by: tuple[str, ...], row: Sequence[Any]) -> UsageRow:
    names: dict[str, Any] = {name: value or None for name, value in zip(by, row, strict=False)}
    return UsageRow(**names, **dict(zip(_SUMS, row[len(by) :], strict=True)))
