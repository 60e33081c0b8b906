"""The streams that are kept for a key: listed once, or followed as they begin, through any gateway."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from msgspec.structs import replace

from tests.flow.command import SCRIPTS, out_of, ran, started
from tests.flow.kept_streams import DEADLINE, Reader, ask_chat, ask_native, begin, open_pair, read_all
from tests.flow.narrow_gateway import digest_of, token_of
from tests.until import until
from tg_base.bus import Entry
from tg_base.bus.memory import MemoryBus
from tg_base.config import ApiKey, GatewayConfig
from tg_client import SyncTgClient, TgClient
from tg_gateway.access import Limits
from tg_gateway.jobs.key_list import FOLLOW_SECONDS, KeyList
from tg_gateway.jobs.logs import JobLogs
from tg_gateway.jobs.stream_list import MAX_LISTED_BYTES, StreamList
from tg_schema import encode
from tg_schema.live import ListedStream
from tg_schema.topics import Topics

STREAMS: Final = "v1/streams"
AS_EVENTS: Final = {"Accept": "text/event-stream"}
NAMES: Final = ("one", "other", "root")
KEYED: Final = GatewayConfig(
    port=0,
    drain=0.05,
    auth="on",
    keys=tuple(ApiKey(name=name, sha256=digest_of(name), admin=name == "root") for name in NAMES),
)
BEARER: Final = {name: {"Authorization": f"Bearer {token_of(name)}"} for name in NAMES}


async def listed(http: ClientSession, bearer: str = "", **query: str) -> list[dict[str, Any]]:
    """What a key sees."""
    async with http.get(STREAMS, params=query, headers=BEARER.get(bearer)) as response:
        assert response.status == 200, await response.text()
        streams: list[dict[str, Any]] = (await response.json())["streams"]
        return streams


async def until_listed(http: ClientSession, *names: str, key: str = "") -> None:
    """Until just these are listed. No first token waits until its stream is."""
    async with asyncio.timeout(DEADLINE):
        while True:
            if [each["id"] for each in await listed(http, key)] == list(names):
                return
            await asyncio.sleep(0.01)


async def follow(stack: AsyncExitStack, http: ClientSession, bearer: str = "", **query: str) -> Reader:
    """Follow what a key sees, as a client that has got what there was."""
    headers = AS_EVENTS | BEARER.get(bearer, {})
    response = await stack.enter_async_context(http.get(STREAMS, params=query, headers=headers))
    assert (response.status, response.content_type) == (200, "text/event-stream")
    reader = Reader(response)
    await reader.until(b": ")
    return reader


def ids_of(reader: Reader) -> list[str]:
    """The ids of all streams of which it was told."""
    lines = reader.got.split(b"\n")
    return [json.loads(line[6:])["id"] for line in lines if line.startswith(b"data: ")]


async def test_a_stream_that_begins_on_another_gateway_is_followed() -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        assert await listed(it.one) == []
        early = await follow(stack, it.other)
        assert ids_of(early) == []
        it.step(9)
        first = await begin(stack, it.one, ask_native("1"))
        await early.until(first.name.encode())
        late = await follow(stack, it.one)
        assert ids_of(late) == [first.name]
        second = await begin(stack, it.other, ask_chat("1"))
        for reader in (early, late):
            await reader.until(second.name.encode())
            assert ids_of(reader) == [first.name, second.name]
        for http in (it.one, it.other):
            native, chat = await listed(http)
            assert (native["id"], native["door"], native["model"]) == (first.name, "native", "counting")
            assert (chat["id"], chat["door"], chat["service"]) == (second.name, "openai", "text-completion")
            assert 0 < native["begun"] <= chat["begun"]
            assert await read_all(http, chat["id"])


async def test_an_answer_to_repeated_requests_is_listed_once_and_what_is_not_kept_is_not() -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        it.step(9)
        path, body = ask_native("1")
        async with it.one.post(path, json=body) as response:
            await response.read()
        reader = await follow(stack, it.one)
        for http in (it.one, it.other):
            async with http.post(path, json=body, headers={"Idempotency-Key": "word"}) as response:
                name = response.headers["X-Stream-Id"]
                await response.read()
        # It is listed behind all that came before.
        last = await begin(stack, it.one, ask_native("1"))
        await reader.until(last.name.encode())
        assert ids_of(reader) == [name, last.name]


async def test_a_key_sees_its_own_streams_and_an_administrator_those_of_any() -> None:
    async with open_pair(KEYED) as it, AsyncExitStack() as stack:
        it.step(9)
        own = await follow(stack, it.other, "one")
        for_root = await follow(stack, it.other, "root", key="one")
        foreign = await begin(stack, it.one, ask_native("1"), **BEARER["other"])
        await until_listed(it.other, foreign.name, key="other")
        mine = await begin(stack, it.one, ask_native("1"), **BEARER["one"])
        for reader in (own, for_root):
            await reader.until(mine.name.encode())
            assert ids_of(reader) == [mine.name]
        assert [each["id"] for each in await listed(it.one, "one", key="one")] == [mine.name]
        assert [each["id"] for each in await listed(it.one, "root", key="other")] == [foreign.name]
        for key in ("unknown", "x" * 5000, ""):
            assert await listed(it.one, "root", key=key) == []
        assert await listed(it.one, "root") == []
        for path, key, name, status in (
            (STREAMS, "one", "other", 403),
            (STREAMS, "one", "unknown", 403),
            (STREAMS, "nobody", "one", 401),
            (f"{STREAMS}/{mine.name}", "other", "one", 403),
            (f"{STREAMS}/{mine.name}", "root", "other", 404),
            (f"{STREAMS}/{mine.name}", "root", "one", 200),
            (f"{STREAMS}/{mine.name}", "one", "one", 200),
        ):
            async with it.one.get(path, params={"key": name}, headers=BEARER.get(key)) as response:
                assert response.status == status, (path, key, name)


async def test_a_stream_whose_time_is_over_is_not_listed() -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        it.step(9)
        path, body = ask_native("1")
        async with it.one.post(path, json=body, headers={"X-Tokengrid-Keep": "2s"}) as response:
            short = response.headers["X-Stream-Id"]
            await response.read()
        await until_listed(it.other, short)
        kept = await begin(stack, it.one, ask_native("1"))
        await until_listed(it.other, short, kept.name)
        await until_listed(it.other, kept.name)
        assert ids_of(await follow(stack, it.other)) == [kept.name]


async def test_more_followers_than_may_be_are_refused() -> None:
    async with open_pair(limits=Limits(followers=2)) as it, AsyncExitStack() as stack:
        for _ in range(2):
            await follow(stack, it.one)
        async with it.one.get(STREAMS, headers=AS_EVENTS) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert await listed(it.one) == []


@asynccontextmanager
async def following(known: KeyList) -> AsyncIterator[AsyncIterator[Entry | None]]:
    async with asyncio.timeout(DEADLINE), aclosing(known.follow()) as entries:
        yield entries


async def bodies(entries: AsyncIterator[Entry | None]) -> list[bytes]:
    """What there is at the moment."""
    found = list[bytes]()
    while (entry := await anext(entries)) is not None:
        found += [entry.body] if entry.body else []
    return found


@pytest.mark.parametrize("seconds", [100.0, 10 * FOLLOW_SECONDS])
async def test_who_follows_comes_again_at_the_turn_of_a_period(seconds: float) -> None:
    now = 1.5 * seconds
    logs = JobLogs(MemoryBus(), Topics(), lambda: now, silence=0.05)
    known = KeyList(logs, "key", "streams", seconds)
    async with following(known) as entries:
        assert await bodies(entries) == []
        await known.add("a", b"a", 9e9)
        entry = await anext(entries)
        assert entry is not None
        assert entry.body == b"a"
        # The period's turn, or the end of the time for which one may follow.
        now += min(0.5 * seconds, FOLLOW_SECONDS)
        await known.add("b", b"b", 9e9)
        # Nothing more comes, and it ends.
        rest = [entry async for entry in entries]
        assert [entry.body for entry in rest if entry is not None] in ([], [b"b"])
    async with following(known) as entries:
        assert await bodies(entries) == [b"a", b"b"]
    now += 2 * seconds
    async with following(known) as entries:
        assert await bodies(entries) == []
    await logs.bus.aclose()


async def test_a_gateway_lists_no_more_of_a_key_than_has_room_in_a_day() -> None:
    now = 0.0
    bus = MemoryBus()
    streams, wide = StreamList(JobLogs(bus, Topics(), lambda: now), "key"), "x" * (MAX_LISTED_BYTES // 4)
    for number in range(6):
        await streams.add(ListedStream(f"ks-{number}", now, wide, ""), 9e9)
    assert len(await streams.read()) == 4
    now += 24 * 3600
    await streams.add(ListedStream("ks-7", now, wide, ""), 9e9)
    assert len(await streams.read()) == 5
    await bus.aclose()


async def test_a_client_that_comes_again_is_told_of_each_stream_once() -> None:
    first, second, third = (ListedStream(f"ks-{number}", 1.0, "default", "prompt") for number in range(3))
    # The gateway ends each connection; it has forgotten the first stream in the end.
    connections = [[first, second], [first, second, third], [second, third], [second, replace(first, begun=2.0)]]
    asked = list[str]()

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query["key"])
        events = b"".join(b"data: %b\n\n" % encode(each) for each in connections[len(asked) - 1])
        return web.Response(body=events, content_type="text/event-stream")

    app = web.Application()
    app.router.add_get("/v1/streams", answer)
    async with (
        asyncio.timeout(DEADLINE),
        TestServer(app) as server,
        TgClient(str(server.make_url("/"))) as client,
        client.follow_streams(key="a key") as streams,
    ):
        assert [await anext(streams) for _ in range(4)] == [first, second, third, replace(first, begun=2.0)]
    assert asked == 4 * ["a key"]


def follow_first(url: str) -> ListedStream:
    """The first stream of which a client without a loop is told."""
    with SyncTgClient(url) as client, client.follow_streams() as streams:
        return next(streams)


async def test_a_command_prints_the_ids_of_streams_as_they_begin() -> None:
    async with open_pair(KEYED) as it, AsyncExitStack() as stack:
        it.step(9)
        url, root = str(it.other._base_url), {"TOKENGRID_TOKEN": token_of("root")}
        first = await begin(stack, it.one, ask_native("1"), **BEARER["one"])
        async with (
            started("tg-replay", "--follow", "--key", "one", "-u", url, env=root) as command,
            asyncio.timeout(DEADLINE),
        ):
            line = (await out_of(command).readline()).decode().split()
            assert (line[0], line[2:]) == (first.name, ["counting", "native"])
            second = await begin(stack, it.one, ask_chat("1"), **BEARER["one"])
            assert (await out_of(command).readline()).decode().split()[0] == second.name
        await second.until_end()
        done = await ran("tg-replay", second.name, "--key", "one", "--speed", "max", "-u", url, env=root)
        assert (done.code, done.out) == (0, "0 \n")
        for wrong in ((), (second.name, "--follow")):
            assert (await ran("tg-replay", *wrong, "-u", url, env=root)).code == 2


def find_documented_line() -> str:
    page = Path(__file__).parents[2] / "docs/gateway.md"
    (line,) = re.findall(r"`(tg-replay --follow \| .*)` records all", page.read_text("utf-8"))
    return str(line)


async def test_a_line_of_shell_records_all_streams(tmp_path: Path) -> None:
    line = find_documented_line()
    async with open_pair() as it, AsyncExitStack() as stack:
        it.step(9)
        env = {"PATH": f"{SCRIPTS}:{os.environ['PATH']}", "TOKENGRID_URL": str(it.other._base_url)}
        shell = await stack.enter_async_context(started("setsid", "bash", "-c", f"cd {tmp_path}; {line}", env=env))
        stack.callback(os.killpg, shell.pid, signal.SIGKILL)
        streams = [await begin(stack, it.one, asked) for asked in (ask_native("1"), ask_chat("1"))]
        files = [tmp_path / f"{stream.name}.jsonl" for stream in streams]
        await until(lambda: all(file.exists() and b'"end_of_stream":true' in file.read_bytes() for file in files))


async def test_a_client_without_a_loop_follows_too() -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        it.step(9)
        first = await begin(stack, it.one, ask_native("1"))
        found = await asyncio.to_thread(follow_first, str(it.other._base_url))
        assert (found.id, found.flow, found.service) == (first.name, "default", "text-completion")
