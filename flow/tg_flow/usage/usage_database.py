"""Records of usage -> hourly sums in SQLite -> rows."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from typing_extensions import override

from tg_flow.usage.period import HOUR_SECONDS
from tg_flow.usage.usage_store import (
    KEPT_SECONDS,
    KNOWN_SECONDS,
    NAMES,
    VERSION,
    UsageStore,
    add_sums,
    identify,
    make_row,
    read_rows,
    select_sums,
)
from tg_schema.errors import Unavailable
from tg_schema.usage_record import UsageRecord
from tg_schema.usage_report import USAGE_SUMS, UsageRow

LOCKED_SECONDS: Final = 5.0

_KEYS: Final = ", ".join(f'"{name}"' for name in ("hour", *NAMES))
_TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS known (
    stream TEXT, attempt INTEGER, call INTEGER, began INTEGER, since INTEGER,
    PRIMARY KEY (stream, attempt, call, began)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS known_since ON known (since);
CREATE TABLE IF NOT EXISTS hourly (
    {_KEYS}, {", ".join(f"{name} INTEGER" for name in USAGE_SUMS)}, PRIMARY KEY ({_KEYS})
) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""
_KNOW: Final = "INSERT OR IGNORE INTO known VALUES (?, ?, ?, ?, ?)"
_ADD: Final = add_sums("hourly", _KEYS, f"VALUES ({', '.join('?' * (1 + len(NAMES) + len(USAGE_SUMS)))})", _KEYS)
_HOUR: Final = "strftime('%Y-%m-%dT%H:00Z', hour, 'unixepoch')"


class UsageDatabase(UsageStore):
    """Sums in a file, or in memory.

    Args:
        file: the file of the sums; None = in memory.
        clock: the time in seconds since the epoch.
        locked_seconds: how long to wait while another process holds the file.
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

    @override
    def open(self) -> None:
        with self._reporting("opened"):
            self._connection = sqlite3.connect(
                self._place, timeout=self._locked_seconds, isolation_level=None, check_same_thread=False
            )
            with ExitStack() as undo:
                undo.callback(self._connection.close)
                self._prepare()
                undo.pop_all()

    @override
    def close(self) -> None:
        with self._one_at_a_time:
            self._connection.close()

    @override
    def add(self, records: Sequence[tuple[UsageRecord, int | None]]) -> None:
        now = int(self._clock())
        with self._reporting("written"), self._one_at_a_time, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for record, cost in records:
                if self._connection.execute(_KNOW, identify(record, now)).rowcount:
                    self._connection.execute(_ADD, make_row(record, cost, now))
            if now - self._pruned_at > HOUR_SECONDS:
                self._connection.execute("DELETE FROM known WHERE since < ?", (now - KNOWN_SECONDS,))
                self._connection.execute("DELETE FROM hourly WHERE hour < ?", (now - KEPT_SECONDS,))
                self._pruned_at = now

    @override
    def find(self, by: tuple[str, ...], since: int, until: int, key: str | None, most: int) -> list[UsageRow]:
        query = select_sums("hourly", by, _HOUR)
        with self._reporting("read"), self._one_at_a_time:
            found = self._connection.execute(query, {"1": since, "2": until, "3": key, "4": most}).fetchall()
        return read_rows(by, found)

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        if self._connection.execute("PRAGMA user_version").fetchone()[0] > VERSION:
            raise Unavailable(f"{self._place} was written by a newer version; update this one, or name another file")
        self._connection.executescript(_TABLES)
        # An older version, with fewer counts, may have created the tables.
        present = {name for _, name, *_ in self._connection.execute("PRAGMA table_info(hourly)")}
        for name in USAGE_SUMS:
            if name not in present:
                self._connection.execute(f"ALTER TABLE hourly ADD COLUMN {name} INTEGER")

    @contextmanager
    def _reporting(self, done: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorname", type(error).__name__)
            raise Unavailable(f"the usage database {self._place} cannot be {done}: {code}") from None
