"""The reader of usage: each record counts once, whatever happens to the reader, the file, and the records."""

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fakes.refusing_bus import RefusingBus
from tests.flow.serve_context import context_of
from tests.until import TICK_SECONDS, until
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.config import ConfigWatcher
from tg_base.runtime import running
from tg_flow.usage import UsageConfig, UsageKind
from tg_flow.usage.period import find_period
from tg_flow.usage.prices import Prices
from tg_flow.usage.usage_database import UsageDatabase
from tg_flow.usage.usage_reader import UsageReader, UsageTopic
from tg_schema import TgError, Usage, encode
from tg_schema.errors import BadRequest
from tg_schema.topics import Topics
from tg_schema.usage_record import Payer, UsageRecord
from tg_schema.usage_report import UsageRequest, UsageResponse, UsageRow

TOPICS = Topics()
ENDED = 1_793_538_000_000 + 59 * 60_000
"""2026-11-01T13:59Z, in milliseconds."""
IN_2026 = UsageRequest(since="2026-01-01", until="2027-01-01")
FIFTEEN = Usage(10, 5)
ALICE, BOB = Payer("alice", "c1", ("red", "blue")), Payer("bob")


def record(stream: str, tokens: Usage = FIFTEEN, **more: Any) -> UsageRecord:
    fields = {"model": "m", "payer": ALICE, "ended_at": ENDED, "usage": tokens, **more}
    return UsageRecord(stream, 1, **fields)


class Reader:
    """A reader that runs, and its client."""

    def __init__(self, bus: Bus, client: Client[UsageRequest, UsageResponse]) -> None:
        self._bus = bus
        self._client = client

    async def write(self, *records: UsageRecord) -> None:
        for each in records:
            await self._bus.publish(TOPICS.usage, encode(each), {})

    async def ask(self, *by: str, key: str | None = None) -> list[UsageRow]:
        asked = msgspec.structs.replace(IN_2026, by=by, key=key)
        return list((await self._client.call(asked)).rows)

    async def until(self, calls: int) -> UsageRow:
        """The sum of all, once it has so many calls."""
        async with asyncio.timeout(30):
            while True:
                rows = await self.ask()
                if rows and rows[0].calls >= calls:
                    return rows[0]
                await asyncio.sleep(TICK_SECONDS)


@contextmanager
def counted_in(file: Path | None, **more: Any) -> Iterator[UsageDatabase]:
    """The sums in this file; None = in memory."""
    database = UsageDatabase(file, **more)
    database.open()
    try:
        yield database
    finally:
        database.close()


def config_file(folder: Path, database: str = "", rest: str = "") -> Path:
    file = folder / "tg.toml"
    file.write_text(f"[flows.default]\nusage = {{ {database} }}\n{rest}")
    return file


@asynccontextmanager
async def reading(file: Path, bus: Bus) -> AsyncIterator[Reader]:
    watcher = ConfigWatcher(file, services=(UsageConfig,), poll=0.01)
    async with (
        watcher,
        UsageKind().serve(context_of(watcher, bus)),
        Requestor(bus, watcher.config.topics) as requestor,
    ):
        yield Reader(bus, Client(requestor, watcher.config.routes("usage")[0]))


@pytest.fixture
async def bus() -> AsyncIterator[MemoryBus]:
    async with aclosing(MemoryBus()) as bus:
        yield bus


async def test_sums_by_every_field(bus: MemoryBus, tmp_path: Path) -> None:
    async with reading(config_file(tmp_path), bus) as reader:
        late: dict[str, Any] = {"ended_at": ENDED + 60_000, "payer": BOB, "flow": "f", "door": "openai"}
        await reader.write(
            record("1", Usage(10, 5, 4, 2, 1), cost=7, provider="p", upstream_model="u"),
            record("2", Usage(1, 2), estimated=True, cost=8),
            record("3", Usage(None, None), outcome="failed", **late),
            record("4", **late),
        )
        whole = await reader.until(4)
        tokens: dict[str, Any] = {
            "in_token": 21,
            "out_token": 12,
            "cached_token": 4,
            "reasoning_token": 2,
            "cache_write_token": 1,
        }
        assert whole == UsageRow(calls=4, **tokens, estimated_token=3, uncounted_calls=1, cost=15, unpriced_calls=2)
        assert [(row.hour, row.calls) for row in await reader.ask("hour")] == [
            ("2026-11-01T13:00Z", 2),
            ("2026-11-01T14:00Z", 2),
        ]
        assert [row.day for row in await reader.ask("day")] == ["2026-11-01"]
        assert [row.month for row in await reader.ask("month")] == ["2026-11"]
        named = [
            (row.key, row.customer, row.tags, row.flow, row.door, row.outcome)
            for row in await reader.ask("key", "customer", "tags", "flow", "door", "outcome")
        ]
        assert named == [
            ("alice", "c1", "red,blue", None, None, "complete"),
            ("bob", None, None, "f", "openai", "complete"),
            ("bob", None, None, "f", "openai", "failed"),
        ]
        assert {
            (row.model, row.provider, row.upstream_model)
            for row in await reader.ask("model", "provider", "upstream_model")
        } == {("m", None, None), ("m", "p", "u")}
        assert [row.calls for row in await reader.ask("key", key="bob")] == [2]


async def test_unknown_is_not_zero(bus: MemoryBus, tmp_path: Path) -> None:
    async with reading(config_file(tmp_path), bus) as reader:
        await reader.write(record("1", Usage()))
        assert await reader.until(1) == UsageRow(calls=1, uncounted_calls=1, unpriced_calls=1)
        await reader.write(record("2", Usage(0, 0)))
        row = await reader.until(2)
        assert (row.in_token, row.out_token, row.cost) == (0, 0, None)


async def test_a_record_that_comes_twice_counts_once(bus: MemoryBus, tmp_path: Path) -> None:
    async with reading(config_file(tmp_path), bus) as reader:
        again = record("1", call=2)
        other = msgspec.structs.replace(again, attempt=2)
        # A peer that numbers its requests has begun to count anew.
        reused = msgspec.structs.replace(record("1"), began_at=record("1").began_at + 1)
        await reader.write(record("1"), again, record("1"), again, other, reused)
        await reader.write(record("last"))
        row = await reader.until(5)
        assert (row.calls, row.in_token) == (5, 50)


async def test_a_reader_that_dies_between_commit_and_acknowledgement(bus: MemoryBus, tmp_path: Path) -> None:
    file = tmp_path / "usage.db"
    async with UsageTopic(bus, TOPICS) as topic:
        for stream in ("1", "2"):
            await bus.publish(TOPICS.usage, encode(record(stream)), {})
        assert len(await topic.take()) == 2
        with counted_in(file) as database:
            database.add([(record("1"), None), (record("2"), None)])
    await bus.publish(TOPICS.usage, encode(record("3")), {})
    for _ in range(2):
        async with reading(config_file(tmp_path, f'database = "{file}"'), bus) as reader:
            row = await reader.until(3)
            assert (row.calls, row.in_token) == (3, 30)


async def test_an_unreadable_record_holds_up_no_other(bus: MemoryBus, tmp_path: Path) -> None:
    bad = [
        b"nothing",
        b'{"attempt":1}',
        encode(record("1", Usage(-1, 2))),
        encode(record("2", Usage(10**13))),
        encode(record("3", cost=-1)),
        encode(record("4", ended_at=-5)),
        b'{"stream":"7","attempt":1,"began_at":9223372036854775808}',
        b'{"stream":"\\ud800","attempt":1}',
    ]
    letters = TOPICS.dead_letter(TOPICS.usage)
    async with bus.subscribe(letters, "person") as kept, reading(config_file(tmp_path), bus) as reader:
        for body in bad:
            await bus.publish(TOPICS.usage, body, {})
        # The same beside others in one message.
        await bus.publish(TOPICS.usage, b"\n".join((encode(record("5")), *bad, encode(record("6")))), {})
        assert (await reader.until(2)).calls == 2
        assert [(await anext(kept)).body for _ in (*bad, *bad)] == [*bad, *bad]


async def test_an_unreadable_record_that_cannot_be_put_aside_comes_again(bus: MemoryBus, tmp_path: Path) -> None:
    letters = TOPICS.dead_letter(TOPICS.usage)
    refusing = RefusingBus(bus, letters)
    async with reading(config_file(tmp_path), refusing) as reader:
        await bus.publish(TOPICS.usage, b"\n".join((encode(record("1")), b"nothing", encode(record("2")))), {})
        assert (await reader.until(2)).calls == 2
    async with bus.subscribe(letters, "person") as kept, reading(config_file(tmp_path), bus) as reader:
        assert (await anext(kept)).body == b"nothing"
        assert (await reader.until(2)).calls == 2


async def test_a_newer_record_counts_by_what_is_known_of_it(
    bus: MemoryBus, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with reading(config_file(tmp_path), bus) as reader:
        newer = msgspec.to_builtins(record("1")) | {"version": 2, "outcome": "moved", "colour": "red"}
        await bus.publish(TOPICS.usage, encode(newer), {})
        await bus.publish(TOPICS.usage, encode(newer | {"stream": "2"}), {})
        await reader.until(2)
        assert [row.outcome for row in await reader.ask("outcome")] == ["failed"]
    assert "".join(capfd.readouterr()).count("usage.newer_records") == 1


async def test_while_the_file_takes_nothing_records_wait(
    bus: MemoryBus, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with counted_in(tmp_path / "usage.db", locked_seconds=0.0) as database:
        async with UsageTopic(bus, TOPICS) as topic:
            reader = UsageReader(topic, database, Prices({}, None), first_pause=TICK_SECONDS)
            holder = sqlite3.connect(tmp_path / "usage.db", isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            await bus.publish(TOPICS.usage, encode(record("1")), {})
            async with running(reader.run()):
                said = ""

                def has_said(event: str) -> bool:
                    nonlocal said
                    said += "".join(capfd.readouterr())
                    return event in said

                await until(lambda: has_said("usage.waiting"))
                assert "SQLITE_BUSY" in said
                assert database.find((), 0, 2**40, None, 1) == []
                holder.execute("ROLLBACK")
                await until(lambda: has_said("usage.recovered"))
                assert len(database.find((), 0, 2**40, None, 1)) == 1
                holder.close()
    said += "".join(capfd.readouterr())
    assert (said.count("usage.waiting"), said.count("usage.recovered")) == (1, 1)


async def test_the_end_of_a_process_waits_for_the_file_and_says_what_it_lost(
    bus: MemoryBus, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with counted_in(tmp_path / "usage.db", locked_seconds=0.0) as database:
        async with UsageTopic(bus, TOPICS) as topic:
            reader = UsageReader(topic, database, Prices({}, None), first_pause=TICK_SECONDS)
            await bus.publish(TOPICS.usage, encode(record("1")), {})
            await reader.finish()
            holder = sqlite3.connect(tmp_path / "usage.db", isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            await bus.publish(TOPICS.usage, encode(record("2")), {})
            await reader.finish(0.5)
            holder.close()
            (row,) = database.find((), 0, 2**40, None, 1)
            assert row.calls == 1
            assert "".join(capfd.readouterr()).count("usage.lost") == 1


async def test_long_names_are_cut(bus: MemoryBus, tmp_path: Path) -> None:
    async with reading(config_file(tmp_path), bus) as reader:
        await reader.write(record("1", model="m" * 1_000_000))
        await reader.until(1)
        assert [row.model for row in await reader.ask("model")] == ["m" * 256]


async def test_many_rows_come_in_several_records_and_too_many_not_at_all(bus: MemoryBus, tmp_path: Path) -> None:
    file = tmp_path / "usage.db"
    with counted_in(file) as database:
        records = [record(str(number), payer=Payer(f"k{number:05}")) for number in range(10_001)]
        database.add([(each, None) for each in records[:500]])
        async with reading(config_file(tmp_path, f'database = "{file}"'), bus) as reader:
            assert [row.key for row in await reader.ask("key")] == [each.payer.key for each in records[:500]]
            database.add([(each, None) for each in records])
            with pytest.raises(BadRequest, match="more than 10000 rows"):
                await reader.ask("key")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (UsageRequest(("colour",)), "usage cannot be summed by 'colour'; `by` may name: hour, day"),
        (UsageRequest(since="yesterday"), "`since` is no time: write a time in UTC"),
        (UsageRequest(since="2026-11-02", until="2026-11-01"), "the period is empty"),
        (UsageRequest(until="2026-13"), "`until` is no time"),
    ],
)
async def test_a_senseless_question(bus: MemoryBus, tmp_path: Path, asked: UsageRequest, words: str) -> None:
    async with reading(config_file(tmp_path), bus) as reader:
        with pytest.raises(BadRequest, match=words):
            await reader._client.call(asked)


async def test_an_edited_price_holds_for_the_next_record(bus: MemoryBus, tmp_path: Path) -> None:
    price = "[prices.m]\ninput = {}\noutput = 2\n"
    file = config_file(tmp_path, rest=price.format(1))
    async with reading(file, bus) as reader:
        await reader.write(record("1"))
        assert (await reader.until(1)).cost == 10 * 1000 + 5 * 2000
        config_file(tmp_path, rest=price.format(3))
        number = 1
        async with asyncio.timeout(30):
            while (await reader.until(number)).cost == number * 20_000:
                number += 1
                await reader.write(record(str(number)))


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("[prices.m]\ninput = -1\noutput = 1\n", "line 4: prices.m.input must be a number >= 0"),
        ("[prices.m]\ninput = nan\noutput = 1\n", "line 4: prices.m.input must be"),
        ("[prices.m]\ninput = inf\noutput = 1\n", "line 4: prices.m.input must be"),
        ("[prices.m]\ninput = 1\n", "line 3: prices.m needs the field output"),
        ("[prices.m]\ninput = 1\noutput = 1\ncached = 1\n", 'line 6: unknown field "cached" in prices.m'),
        ("[flows.other]\nusage = {}\n", 'flow "other" has usage too; one flow binds it'),
    ],
)
def test_a_mistake_in_the_file(tmp_path: Path, rest: str, words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        ConfigWatcher(config_file(tmp_path, rest=rest), services=(UsageConfig,))
    assert words in refused.value.message


@pytest.mark.parametrize("content", [b"no database at all, but a text that somebody keeps", None])
async def test_a_file_that_is_no_database_of_ours(bus: MemoryBus, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "usage.db"
    if content is None:
        newer = sqlite3.connect(file)
        newer.execute("PRAGMA user_version = 2")
        newer.close()
    else:
        file.write_bytes(content)
    with pytest.raises(TgError) as refused:
        async with reading(config_file(tmp_path, f'database = "{file}"'), bus):
            pass
    words = "was written by a newer version" if content is None else "cannot be opened: SQLITE_NOTADB"
    assert words in refused.value.message
    assert f"{tmp_path / 'tg.toml'}, line 2: " in refused.value.message


FULL = """
import resource, signal, sys
from pathlib import Path
from tg_flow.usage.usage_database import UsageDatabase
from tg_schema import TgError, Usage
from tg_schema.usage_record import UsageRecord

database = UsageDatabase(Path(sys.argv[1]))
database.open()
batches = [[(UsageRecord(f"{n}-{m}", 1, usage=Usage(1, 1)), 5) for m in range(200)] for n in range(50)]
# As on a full disk: no file of this process may grow beyond it.
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
taken = refused = 0
try:
    for batch in batches:
        database.add(batch)
        taken += 1
except TgError as error:
    refused = error.type
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
# The batch that was refused comes again, as a whole; a part of it may not count already.
for batch in batches[taken:]:
    database.add(batch)
(row,) = database.find((), 0, 2**40, None, 1)
print(0 < taken < 50, refused, row.calls, row.in_token, row.cost)
"""


def test_a_disk_that_is_full_takes_all_of_a_batch_or_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / "usage.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["True", "unavailable", "10000", "10000", "50000"], done.stderr


def test_a_months_end_is_that_of_utc_wherever_clocks_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Berlin, clocks were set forward on the last day of March 2024, which ends at 22:00 UTC there."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        with counted_in(None, clock=lambda: 1.72e9) as database:
            hours = [datetime(2024, 3, 31, hour, 30, tzinfo=UTC) for hour in (0, 1, 2, 21, 22, 23)]
            ends = [int(at.timestamp() * 1000) for at in (*hours, datetime(2024, 4, 1, tzinfo=UTC))]
            database.add([(record(f"{end}", ended_at=end), None) for end in ends])
            march = find_period("2024-03", "2024-04", 2e9)
            assert march == (1709251200, 1711929600)
            assert [(row.month, row.calls) for row in database.find(("month",), *march, None, 9)] == [("2024-03", 6)]
            year = find_period("2024-01-01", "2025-01-01", 2e9)
            assert [(row.day, row.calls) for row in database.find(("day",), *year, None, 9)] == [
                ("2024-03-31", 6),
                ("2024-04-01", 1),
            ]
            assert len(database.find(("hour",), *year, None, 99)) == 7
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("minutes", [-10, 0, 10])
def test_a_writers_clock_that_is_wrong_moves_its_calls_and_counts_them_once(minutes: int) -> None:
    now = ENDED / 1000
    with counted_in(None, clock=lambda: now) as database:
        skewed = record("1", ended_at=ENDED + minutes * 60_000, unique=True)
        # Its asker, whose clock is right, has recorded it, too.
        database.add([(skewed, 3), (record("1", unique=True), 3)])
        now += 47 * 3600
        database.add([(skewed, 3)])
        (row,) = database.find(("hour",), 0, 2**40, None, 9)
        assert (row.hour, row.calls, row.cost) == (f"2026-11-01T{14 if minutes > 0 else 13}:00Z", 1, 3)


def test_a_count_that_is_new_gets_its_column(tmp_path: Path) -> None:
    file = tmp_path / "usage.db"
    database = UsageDatabase(file)
    database.open()
    database.add([(record("1"), None)])
    database.close()
    with closing(sqlite3.connect(file)) as older:
        older.execute("ALTER TABLE hourly DROP COLUMN cached_token")
    database.open()
    database.add([(record("2", Usage(10, 5, 4, 2, 1)), None)])
    (row,) = database.find((), 0, 2**40, None, 1)
    database.close()
    assert (row.calls, row.cached_token, row.reasoning_token, row.cache_write_token) == (2, 4, 2, 1)


def test_old_records_are_forgotten_and_their_sums_stay() -> None:
    now = 1e9
    with counted_in(None, clock=lambda: now) as database:
        database.add([(record("1"), 3)])
        now += 49 * 3600
        database.add([(record("2"), None)])
        database.add([(record("1"), 4), (record("2"), None)])
        (row,) = database.find((), 0, 2_000_000_000, None, 9)
        assert (row.calls, row.cost, row.unpriced_calls) == (3, 7, 1)


def test_sums_are_kept_for_400_days() -> None:
    now = 1e9
    with counted_in(None, clock=lambda: now) as database:
        for days, kept in ((0, 1), (399, 2), (402, 2)):
            now = 1e9 + days * 86_400
            database.add([(msgspec.structs.replace(record(f"{days}"), ended_at=0), 3)])
            (row,) = database.find((), 0, 2_000_000_000, None, 9)
            assert row.calls == kept


async def test_a_call_that_asker_and_processor_record_counts_once(bus: MemoryBus, tmp_path: Path) -> None:
    async with reading(config_file(tmp_path), bus) as reader:
        own = record("1", unique=True, began_at=ENDED - 5, provider="p")
        asked = record("1", Usage(9, 9), unique=True, began_at=ENDED - 9, estimated=True)
        others = [msgspec.structs.replace(each, stream="2") for each in (asked, own)]
        await reader.write(own, asked, *others, msgspec.structs.replace(own, call=2), record("last", Usage(0, 0)))
        row = await reader.until(4)
        assert (row.calls, row.in_token, row.out_token) == (4, 10 + 9 + 10, 5 + 9 + 5)
