"""Sums of usage in a real PostgreSQL: the same as in SQLite, each record once, whatever happens to the server."""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.flow.test_usage import TOPICS, config_file, reading, record
from tests.postgres_server import PASSWORD, PostgresServer
from tests.virtual_time import in_virtual_time
from tg_base.bus.memory import MemoryBus
from tg_base.config import ConfigWatcher
from tg_base.runtime import running
from tg_flow.usage import UsageConfig
from tg_flow.usage.period import HOUR_SECONDS
from tg_flow.usage.postgres_database import PostgresDatabase
from tg_flow.usage.prices import Prices
from tg_flow.usage.usage_database import UsageDatabase
from tg_flow.usage.usage_reader import MAX_PAUSE_SECONDS, UsageReader, UsageTopic
from tg_schema import TgError, Usage, encode
from tg_schema.errors import BadRequest, Unavailable
from tg_schema.usage_record import Payer, UsageRecord
from tg_schema.usage_report import USAGE_FIELDS

PATIENCE_SECONDS = 1.0
BACKLOG = 25_000
"""Records of a hundred messages of 64 KiB."""
BACKLOG_SECONDS = 10.0
READERS = 2
ADVICE = "the URL of a database is such as postgresql://user@host:5432/name; do not put the password into it, but into "
WHOLE: Any = ((), 0, 2**40, None, 1)
NOW = time.time()
DAY_SECONDS = 86_400


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer.running() as server:
        yield server


@pytest.fixture(autouse=True)
async def database(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresDatabase:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    await execute(server, "DROP SCHEMA IF EXISTS tg_usage CASCADE")
    return PostgresDatabase(server.url, patience=PATIENCE_SECONDS)


@pytest.fixture
async def bus() -> AsyncIterator[MemoryBus]:
    async with aclosing(MemoryBus()) as bus:
        yield bus


async def execute(server: PostgresServer, statement: str) -> None:
    connection = await asyncpg.connect(server.url)
    await connection.execute(statement)
    await connection.close()


def drawn(draw: random.Random, number: int) -> tuple[UsageRecord, int | None]:
    def maybe(count: int) -> int | None:
        return draw.choice((None, draw.randrange(count)))

    def name() -> str | None:
        return draw.choice((None, "a", "bß", "c,'d\"", "e%s$1?"))

    payer = Payer(name(), name(), tuple(draw.choices("xyz", k=draw.randrange(3))))
    made = record(
        f"stream-{number}",
        Usage(maybe(900), maybe(90), maybe(50), maybe(9), maybe(9)),
        payer=payer,
        door=name(),
        flow=name(),
        model=name() or "m",
        provider=name() or "",
        upstream_model=name() or "",
        outcome=draw.choice(("complete", "failed", "left")),
        operation=draw.choice(("completion", "embedding")),
        estimated=draw.random() < 0.3,
        ended_at=draw.choice((0, 1000 * int(NOW + DAY_SECONDS * draw.uniform(-399, 9)))),
    )
    return made, draw.choice((None, draw.randrange(10**12)))


@pytest.mark.parametrize("seed", range(8))
async def test_it_answers_as_sqlite_does(server: PostgresServer, seed: int) -> None:
    draw = random.Random(seed)
    postgres, sqlite = PostgresDatabase(server.url, clock=lambda: NOW), UsageDatabase(None, clock=lambda: NOW)
    sqlite.open()
    records = [drawn(draw, number) for number in range(60)]
    for _ in range(5):
        # Some come again, in the same batch and in another.
        batch = draw.choices(records, k=30)
        for store in (postgres, sqlite):
            await asyncio.to_thread(store.add, batch)
    for _ in range(12):
        by = tuple(draw.sample(USAGE_FIELDS, draw.randrange(4)))
        since = draw.choice((0, int(NOW) - DAY_SECONDS * draw.randrange(400)))
        asked: Any = (by, since, since + draw.choice((3600, 10**9)), draw.choice((None, "a", "bß")), 1000)
        there, here = await asyncio.to_thread(postgres.find, *asked), sqlite.find(*asked)
        # The order of texts is the database's own.
        assert sorted(there, key=repr) == sorted(here, key=repr), asked
    assert (await asyncio.to_thread(postgres.find, *WHOLE))[0].calls
    sqlite.close()


@in_virtual_time
async def test_after_an_hour_without_its_server_all_is_counted_once(
    server: PostgresServer, database: PostgresDatabase, capfd: pytest.CaptureFixture[str]
) -> None:
    records = 200
    async with (
        aclosing(MemoryBus()) as bus,
        UsageTopic(bus, TOPICS) as topic,
        running(UsageReader(topic, database, Prices({}, None)).run()),
    ):
        server.kill()
        for turn in range(records):
            # Those who write do not wait, and the record before comes again.
            for number in {turn, max(0, turn - 1)}:
                await bus.publish(TOPICS.usage, encode(record(f"s{number}")), {})
            await asyncio.sleep(HOUR_SECONDS / records)
        server.start()
        await asyncio.sleep(2 * MAX_PAUSE_SECONDS)
        (row,) = await asyncio.to_thread(database.find, *WHOLE)
        assert (row.calls, row.in_token) == (records, 10 * records)
    assert "".join(capfd.readouterr()).count("usage.waiting") == 1


async def test_a_statement_ends_with_the_patience_of_who_asked(
    server: PostgresServer, database: PostgresDatabase
) -> None:
    await asyncio.to_thread(database.add, [(record("1"), 1)])
    other = await asyncpg.connect(server.url)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with other.transaction():
        await other.execute("LOCK TABLE tg_usage.hourly")
        with pytest.raises(Unavailable, match="cannot be written"):
            await asyncio.to_thread(database.add, [(record("2"), 1)])
        async with asyncio.timeout(30):
            while await other.fetchval(waiting):
                await other.execute("SELECT pg_sleep(0.01)")
    await other.close()


async def test_names_of_any_length_and_content(database: PostgresDatabase) -> None:
    name = "\U0001f600\0" * 1_000_000
    fields: dict[str, Any] = dict.fromkeys(("flow", "model", "provider", "upstream_model", "door"), name)
    longest = record(name, payer=Payer(name, name, (name,)), **fields)
    for _ in range(2):
        await asyncio.to_thread(database.add, [(longest, 1), (record("2"), 1)])
    rows = await asyncio.to_thread(database.find, ("model", "customer"), 0, 2**40, None, 9)
    assert [(row.calls, row.model and len(row.model)) for row in rows] == [(1, 1), (1, 256)]


async def test_sums_are_kept_for_400_days_by_the_servers_clock(
    server: PostgresServer, database: PostgresDatabase
) -> None:
    ended = [1000 * int(NOW - days * DAY_SECONDS) for days in (0, 399, 402)]
    await asyncio.to_thread(database.add, [(record(f"{end}", ended_at=end), 3) for end in ended])
    # A reader whose own clock is wrong forgets nothing more, neither sums nor which records came.
    for years in (-30, 30):
        astray = PostgresDatabase(server.url, clock=lambda years=years: NOW + years * 366 * DAY_SECONDS)  # type: ignore[misc]
        await asyncio.to_thread(astray.add, [(record(f"{ended[0]}", ended_at=ended[0]), 3)])
    (row,) = await asyncio.to_thread(database.find, *WHOLE)
    assert row.calls == 2


async def test_a_backlog_of_one_row_is_written_in_time(server: PostgresServer) -> None:
    database = PostgresDatabase(server.url, patience=BACKLOG_SECONDS)
    await asyncio.to_thread(database.add, [(record(f"s{number}"), 1) for number in range(BACKLOG)])
    (row,) = await asyncio.to_thread(database.find, *WHOLE)
    assert (row.calls, row.cost) == (BACKLOG, BACKLOG)


async def test_readers_of_the_same_records_do_not_wait_for_each_other(server: PostgresServer) -> None:
    stores = [PostgresDatabase(server.url, patience=BACKLOG_SECONDS) for _ in range(READERS)]
    for store in stores:
        await asyncio.to_thread(store.add, [])
    draw = random.Random()
    for turn in range(3):
        # Each gets them in an order of its own.
        records = [(record(f"s{turn}-{number}", model=f"m{number % 499}"), 1) for number in range(3000)]
        orders = [draw.sample(records, len(records)) for _ in stores]
        await asyncio.gather(*(asyncio.to_thread(store.add, each) for store, each in zip(stores, orders, strict=True)))
    (row,) = await asyncio.to_thread(store.find, *WHOLE)
    assert row.calls == 3 * len(records)


async def test_a_count_that_is_new_gets_its_column(server: PostgresServer, database: PostgresDatabase) -> None:
    await asyncio.to_thread(database.add, [(record("1"), 1)])
    await execute(server, "ALTER TABLE tg_usage.hourly DROP COLUMN cached_token")
    newer = PostgresDatabase(server.url)
    await asyncio.to_thread(newer.add, [(record("2", Usage(10, 5, 4, 2, 1)), 1)])
    (row,) = await asyncio.to_thread(newer.find, *WHOLE)
    assert (row.calls, row.cached_token, row.reasoning_token, row.cache_write_token) == (2, 4, 2, 1)


async def test_a_newer_version_is_left_alone(server: PostgresServer, database: PostgresDatabase) -> None:
    await asyncio.to_thread(database.add, [(record("1"), 1)])
    await execute(server, "INSERT INTO tg_usage.version VALUES (2)")
    with pytest.raises(Unavailable, match="was written by a newer version"):
        await asyncio.to_thread(PostgresDatabase(server.url).add, [(record("2"), 1)])


async def test_the_service_reads_into_it_and_starts_without_it(
    server: PostgresServer, bus: MemoryBus, tmp_path: Path
) -> None:
    server.kill()
    async with reading(config_file(tmp_path, f'database = "{server.url}"'), bus) as reader:
        with pytest.raises(Unavailable, match="cannot be read: ConnectionRefusedError"):
            await reader.ask()
        await reader.write(record("1"), record("1"), record("2"))
        server.start()
        assert (await reader.until(2)).in_token == 20


async def test_a_wrong_password_is_told_and_no_password_is(
    bus: MemoryBus,
    tmp_path: Path,
    server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PGPASSWORD", "wr0ng-secret")
    async with reading(config_file(tmp_path, f'database = "{server.url}"'), bus) as reader:
        with pytest.raises(TgError) as refused:
            await reader.ask()
        assert "InvalidPasswordError" in refused.value.message
    assert "wr0ng-secret" not in "".join(capfd.readouterr()) + refused.value.message


async def test_a_user_who_may_not_create_a_schema_is_told_so_or_uses_its_own(server: PostgresServer) -> None:
    await execute(server, f"CREATE ROLE lesser LOGIN PASSWORD '{PASSWORD}'")
    lesser = PostgresDatabase(server.url.replace("tg@", "lesser@"))
    with pytest.raises(Unavailable, match="its user needs the right CREATE on the database, or the schema tg_usage"):
        await asyncio.to_thread(lesser.add, [(record("1"), 1)])
    await execute(server, "CREATE SCHEMA tg_usage AUTHORIZATION lesser")
    await asyncio.to_thread(lesser.add, [(record("1"), 1)])
    # And one who may only use what is there.
    await execute(server, f"CREATE ROLE least LOGIN PASSWORD '{PASSWORD}'; GRANT USAGE ON SCHEMA tg_usage TO least")
    await execute(server, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tg_usage TO least")
    least = PostgresDatabase(server.url.replace("tg@", "least@"))
    await asyncio.to_thread(least.add, [(record("1"), 1), (record("2"), 1)])
    (row,) = await asyncio.to_thread(least.find, *WHOLE)
    assert row.calls == 2


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://tg:s3cr3t@localhost/usage",
        "postgresql://tg:s3cr3t@x@localhost/usage",
        "postgresql://tg:s3cr3t/@localhost/usage",
        "postgresql://tg@localhost/usage?a=b&password=s3cr3t",
        "postgresql://localhost:port/usage",
        "postgresql://localhost",
        "mysql://localhost/usage",
    ],
)
def test_a_url_that_is_refused_is_not_quoted(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadRequest) as refused:
        ConfigWatcher(config_file(tmp_path, f'database = "{url}"'), services=(UsageConfig,))
    assert f"line 2: {ADVICE}" in refused.value.message
    assert "s3cr3t" not in refused.value.message


@pytest.mark.parametrize(
    "url",
    [
        "postgres://h/d",
        "postgresql:///usage",
        "postgresql://tg@[::1]:5432/usage?sslmode=verify-full",
        "postgresql://tg%3A@db.example:65535/usage?passfile=x",
    ],
)
def test_a_url_that_is_taken(tmp_path: Path, url: str) -> None:
    watcher = ConfigWatcher(config_file(tmp_path, f'database = "{url}"'), services=(UsageConfig,))
    assert watcher.config.bound(UsageConfig)["default"].database == url


def test_without_the_driver_the_command_that_installs_it_is_named(tmp_path: Path) -> None:
    file = config_file(tmp_path, 'database = "postgresql://localhost/usage"')
    program = "import sys; sys.modules['asyncpg'] = None; from tg_serve.start import start_serve; start_serve()"
    arguments = ("--config", str(file), "--port", "0")
    ended = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "line 2: PostgreSQL needs a package that is not installed" in ended.stderr
    assert 'pip install "tokengrid-flow[postgres]"' in ended.stderr
