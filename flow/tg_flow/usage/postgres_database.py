"""Records of usage -> hourly sums in PostgreSQL -> rows. Only this file imports the driver."""

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

PATIENCE_SECONDS: Final = 10.0

Done = TypeVar("Done")
_KNOWN: Final = "stream, attempt, call, began"
_COLUMNS: Final = ", ".join((_KNOWN, "digest, hour", *NAMES, *USAGE_SUMS))
_TYPES: Final = ("text", *3 * ["bigint"], "bytea", "bigint", *len(NAMES) * ["text"], *len(USAGE_SUMS) * ["bigint"])
_VALUES: Final = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(_TYPES, 1))
_NOW: Final = "CAST(extract(epoch FROM now()) AS BIGINT)"
"""By the server's clock: a reader with a wrong clock would delete what other readers have counted."""
_SUMS: Final = ", ".join(f"'{name}'" for name in USAGE_SUMS)
# The names may be longer than an index can hold, so a row is found by a digest of them. Check for the tables first:
# "IF NOT EXISTS" requires the right to create them even if they exist.
_TABLES: Final = f"""
DO $$ BEGIN
IF to_regnamespace('tg_usage') IS NULL THEN
    CREATE SCHEMA tg_usage;
END IF;
IF to_regclass('tg_usage.hourly') IS NULL THEN
    CREATE TABLE tg_usage.version (number bigint PRIMARY KEY);
    CREATE TABLE tg_usage.known (
        stream text, attempt bigint, call bigint, began bigint, since bigint, PRIMARY KEY ({_KNOWN})
    );
    CREATE INDEX known_since ON tg_usage.known (since);
    CREATE TABLE tg_usage.hourly (
        digest bytea, hour bigint, {", ".join(f"{name} text" for name in NAMES)},
        {", ".join(f"{name} bigint" for name in USAGE_SUMS)}, PRIMARY KEY (hour, digest)
    );
    INSERT INTO tg_usage.version VALUES ({VERSION});
END IF;
-- A version with fewer counts may have made it.
IF (SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('tg_usage.hourly') AND attname IN ({_SUMS}))
    < {len(USAGE_SUMS)} THEN
    ALTER TABLE tg_usage.hourly {", ".join(f"ADD COLUMN IF NOT EXISTS {name} bigint" for name in USAGE_SUMS)};
END IF;
END $$
"""  # noqa: S608
_GROUPS: Final = ", ".join(("digest, hour", *NAMES))
# Add one row for all calls with the same hour and names: each change of a row in a transaction slows the next one down.
# Sort both inserts, or two readers could block each other.
_ADD: Final = f"""
WITH come AS (SELECT * FROM unnest({_VALUES}) AS come ({_COLUMNS})),
new AS (
    INSERT INTO tg_usage.known SELECT {_KNOWN}, {_NOW} FROM come ORDER BY {_KNOWN}
    ON CONFLICT DO NOTHING RETURNING {_KNOWN}
)
""" + add_sums(  # noqa: S608
    "tg_usage.hourly",
    _GROUPS,
    f"SELECT {_GROUPS}, {', '.join(f'CAST(sum({name}) AS BIGINT)' for name in USAGE_SUMS)} "  # noqa: S608
    f"FROM come JOIN new USING ({_KNOWN}) GROUP BY {_GROUPS} ORDER BY hour, digest",
    "hour, digest",
)
_PRUNE: Final = f"""
DELETE FROM tg_usage.known WHERE since < {_NOW} - {KNOWN_SECONDS};
DELETE FROM tg_usage.hourly WHERE hour < {_NOW} - {KEPT_SECONDS}
"""  # noqa: S608
_GRANT: Final = "; its user needs the right CREATE on the database, or the schema tg_usage as its own"
_HOUR: Final = """to_char(to_timestamp(hour) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:00"Z"')"""


class PostgresDatabase(UsageStore):
    """Sums in the schema `tg_usage` of a server, which may be unreachable even at the start.

    Each call opens its own connection, on an event loop of its own thread. No connection is kept, shared or reopened.

    Args:
        url: the URL of the server and database, without a password.
        clock: the time in seconds since the epoch, for calls without a time of their end.
        patience: timeout of a call, in seconds.
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
        # Of two with one identity, the first counts.
        rows = {identify(record, now)[:-1]: make_row(record, cost, now) for record, cost in reversed(records)}

        async def write(connection: asyncpg.Connection) -> None:
            if rows:
                columns = zip(*((*identity, *_with_digest(row)) for identity, row in rows.items()), strict=True)
                await connection.execute(_ADD, *columns)
            if now - self._pruned_at > HOUR_SECONDS:
                await connection.execute(_PRUNE)
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
            # The driver's messages may quote data, so report only the type of the error.
            advice = _GRANT if isinstance(error, asyncpg.InsufficientPrivilegeError) else ""
            raise Unavailable(
                f"the usage database {self._url} cannot be {done}: {type(error).__name__}{advice}"
            ) from None

    async def _connected(self, work: Callable[[asyncpg.Connection], Awaitable[Done]]) -> Done:
        async with asyncio.timeout(self._patience):
            # The server must enforce the timeout itself: it would not notice that nobody waits any more.
            limit = {"statement_timeout": str(int(1000 * self._patience))}
            connection = await asyncpg.connect(self._url, server_settings=limit)
            try:
                if not self._prepared:
                    await connection.execute(_TABLES)
                    if await connection.fetchval("SELECT max(number) FROM tg_usage.version") > VERSION:
                        raise Unavailable(f"{self._url} was written by a newer version; update this one")
                    self._prepared = True
                return await work(connection)
            finally:
                # Close it without a goodbye, for which a server that hangs would keep us waiting.
                connection.terminate()


def _with_digest(row: tuple[Any, ...]) -> tuple[Any, ...]:
    names = row[1 : 1 + len(NAMES)]
    return (hashlib.sha256("\0".join(names).encode()).digest(), *row)
