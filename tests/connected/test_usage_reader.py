"""The reader of usage as a process over a real broker: it or its database is killed, and each record counts once."""

import asyncio
import signal
import sqlite3
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg
import pytest

from tests.flow.command import started
from tests.postgres_server import PASSWORD, PostgresServer
from tests.pulsar_server import PulsarServer
from tg_base.bus import open_bus
from tg_schema import Usage, encode
from tg_schema.topics import Topics
from tg_schema.usage_record import Payer, UsageRecord

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

RECORDS = 3000
KILLS = 4


class Sums:
    """What a database file has of one key."""

    def __init__(self, file: Path, key: str) -> None:
        self._file = file
        self._key = key

    def read(self) -> tuple[int, int]:
        """Calls, and their tokens."""
        with closing(sqlite3.connect(self._file, timeout=30)) as database:
            query = "SELECT total(calls), total(in_token) FROM hourly WHERE key = ?"
            calls, tokens = database.execute(query, (self._key,)).fetchone()
        return int(calls), int(tokens)

    async def until(self, calls: int) -> tuple[int, int]:
        """The sums, once there are so many calls."""
        async with asyncio.timeout(120):
            while True:
                read = await asyncio.to_thread(self.read)
                if read[0] >= calls:
                    return read
                await asyncio.sleep(0.005)


@asynccontextmanager
async def reading(file: Path, broker: str) -> AsyncIterator[None]:
    """A reader's process, which is killed at the end."""
    arguments = ("--config", str(file), "--bus", broker, "--only", "usage", "--log-level", "warning")
    async with started("tg-serve", *arguments) as process:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        assert "usage (default)" in line, line
        yield


async def test_a_reader_that_is_killed_counts_each_record_once(pulsar: PulsarServer, tmp_path: Path) -> None:
    file, database, key = tmp_path / "tg.toml", tmp_path / "usage.db", f"key-{uuid.uuid4().hex[:8]}"
    file.write_text(f'[flows.default]\nusage = {{ database = "{database}" }}\n')
    sums = Sums(database, key)
    records = [
        encode(UsageRecord(f"{key}-{number}", 1, payer=Payer(key), usage=Usage(1, 1))) for number in range(RECORDS)
    ]
    async with open_bus(pulsar.service_url) as bus:
        # Its first start subscribes; from then on nothing is missing.
        async with reading(file, pulsar.service_url):
            await bus.publish(Topics().usage, records[0], {})
            await sums.until(1)

        async def publish() -> None:
            for place in range(0, RECORDS, 50):
                # Some come twice, as from a writer that was not told that the first was taken.
                copies = [*records[place : place + 50], *records[max(0, place - 10) : place]]
                await asyncio.gather(*(bus.publish(Topics().usage, body, {}) for body in copies))

        publishing = asyncio.create_task(publish())
        for kill in range(1, KILLS + 1):
            async with reading(file, pulsar.service_url):
                await sums.until(kill * RECORDS // (KILLS + 2))
        await publishing
        async with reading(file, pulsar.service_url):
            await sums.until(RECORDS)
            await bus.publish(Topics().usage, encode(UsageRecord(f"{key}-last", 1, payer=Payer(key))), {})
            assert await sums.until(RECORDS + 1) == (RECORDS + 1, RECORDS)


async def test_a_postgres_that_hangs_and_dies_under_load_misses_and_doubles_nothing(
    pulsar: PulsarServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    file, key, sent = tmp_path / "tg.toml", f"key-{uuid.uuid4().hex[:8]}", 0

    async with open_bus(pulsar.service_url) as bus, asyncio.timeout(240):

        async def publish(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                sent += 1
                body = encode(UsageRecord(f"{key}-{sent}", 1, payer=Payer(key), usage=Usage(1, 1)))
                await asyncio.gather(*(bus.publish(Topics().usage, body, {}) for _ in range(2)))

        async def counted() -> tuple[int, int]:
            """Once there is one more."""
            await publish(1)
            while True:
                connection = await asyncpg.connect(server.url)
                try:
                    query = "SELECT sum(calls), sum(in_token) FROM tg_usage.hourly WHERE key = $1"
                    calls, tokens = await connection.fetchrow(query, key)
                except asyncpg.UndefinedTableError:
                    calls = None
                finally:
                    await connection.close()
                if calls is not None and calls >= sent:
                    return int(calls), int(tokens)
                await asyncio.sleep(0.05)

        with PostgresServer.running() as server:
            file.write_text(f'[flows.default]\nusage = {{ database = "{server.url}" }}\n')
            async with reading(file, pulsar.service_url):
                assert await counted() == (sent, sent)
                publishing = asyncio.create_task(publish(1000))
                server.signal(signal.SIGSTOP)
                await publishing
            # It was killed while it waited for the database: nothing was acknowledged that is not in it.
            server.signal(signal.SIGCONT)
            async with reading(file, pulsar.service_url):
                publishing = asyncio.create_task(publish(1000))
                server.kill()
                await publishing
                server.start()
                assert await counted() == (sent, sent)
