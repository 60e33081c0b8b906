"""Records of usage -> hourly sums in PostgreSQL -> rows: the only import of its driver."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import asyncpg
from typing_extensions import override

from tg_flow.usage.period import HOUR_SECONDS
from tg_flow.usage.usage_store import (
    KEPT_SECONDS,
    KNOWN_SECONDS,
    NAMES,
    SUMS,
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
from tg_schema.usage_report import UsageRow

PATIENCE_SECONDS: Final = 10.0

Done = TypeVar("Done")
_TYPES: Final = ("text", *4 * ["bigint"], "bytea", "bigint", *len(NAMES) * ["text"], *len(SUMS) * ["bigint"])
_VALUES: Final = [f"${place}::{kind}" for place, kind in enumerate(_TYPES, 1)]
# Names alone may be longer than an index can hold, so the sums are found by a digest of them.
_TABLES: Final = f"""
CREATE SCHEMA IF NOT EXISTS tg_usage;
CREATE TABLE IF NOT EXISTS tg_usage.version (number bigint PRIMARY KEY);
CREATE TABLE IF NOT EXISTS tg_usage.known (
    stream text, attempt bigint, call bigint, began bigint, since bigint, PRIMARY KEY (stream, attempt, call, began)
);
CREATE INDEX IF NOT EXISTS known_since ON tg_usage.known (since);
CREATE TABLE IF NOT EXISTS tg_usage.hourly (
    digest bytea, hour bigint, {", ".join(f"{name} text" for name in NAMES)},
    {", ".join(f"{name} bigint" for name in SUMS)}, PRIMARY KEY (hour, digest)
);
INSERT INTO tg_usage.version VALUES ({VERSION}) ON CONFLICT DO NOTHING;
"""  # noqa: S608
_ADD: Final = (
    f"WITH new AS (INSERT INTO tg_usage.known VALUES ({', '.join(_VALUES[:5])}) ON CONFLICT DO NOTHING RETURNING 1) "  # noqa: S608
    + add_sums("tg_usage.hourly", f"SELECT {', '.join(_VALUES[5:])} FROM new", "hour, digest")  # noqa: S608
)
_HOUR: Final = """to_char(to_timestamp(hour) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:00"Z"')"""


class PostgresDatabase(UsageStore):
    """Sums in the schema `tg_usage` of a server, which may be away at the start too.

    Each call has a connection of its own, in a loop of its thread: none is kept alive, shared or opened again.

    Args:
        url: the server and its database, without a password.
        clock: the time in seconds since the epoch.
        patience: seconds for a call.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time, patience: float = PATIENCE_SECONDS) -> None:
        self._url = url
        self._clock = clock
        self._patience = patience
        self._prepared = False
        self._pruned_at = 0

    @override
    def add(self, records: Sequence[tuple[UsageRecord, int | None]]) -> None:
        now = int(self._clock())
        rows = [(*identify(record, now), *_with_digest(make_row(record, cost, now))) for record, cost in records]

        async def write(connection: asyncpg.Connection) -> None:
            # All rows or none.
            await connection.executemany(_ADD, rows)
            if now - self._pruned_at > HOUR_SECONDS:
                await connection.execute("DELETE FROM tg_usage.known WHERE since < $1", now - KNOWN_SECONDS)
                await connection.execute("DELETE FROM tg_usage.hourly WHERE hour < $1", now - KEPT_SECONDS)
                self._pruned_at = now

        self._run(write, "written")

    @override
    def find(self, by: tuple[str, ...], since: int, until: int, key: str | None, most: int) -> list[UsageRow]:
        query = select_sums("tg_usage.hourly", by, _HOUR)
        return read_rows(by, self._run(lambda connection: connection.fetch(query, since, until, key, most), "read"))

    def _run(self, work: Callable[[asyncpg.Connection], Awaitable[Done]], done: str) -> Done:
        try:
            return asyncio.run(self._connected(work))
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            self._prepared = False
            # Their messages may quote what was to be written.
            raise Unavailable(f"the usage database {self._url} cannot be {done}: {type(error).__name__}") from None

    async def _connected(self, work: Callable[[asyncpg.Connection], Awaitable[Done]]) -> Done:
        async with asyncio.timeout(self._patience):
            connection = await asyncpg.connect(self._url)
            try:
                if not self._prepared:
                    await connection.execute(_TABLES)
                    if await connection.fetchval("SELECT max(number) FROM tg_usage.version") > VERSION:
                        raise Unavailable(f"{self._url} was written by a newer version; update this one")
                    self._prepared = True
                return await work(connection)
            finally:
                # At once: a server that hangs would not say goodbye.
                connection.terminate()


def _with_digest(row: tuple[Any, ...]) -> tuple[Any, ...]:
    names = row[1 : 1 + len(NAMES)]
    return (hashlib.sha256("\0".join(names).encode()).digest(), *row)
