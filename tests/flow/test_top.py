"""`tg-top` as a process, on a terminal of 80 x 24 and by textual's pilot: what it shows, its keys, how it ends."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from aiohttp.typedefs import Handler
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from tests.flow.command import out_of, ran, started
from tests.flow.open_gateway import MOUNTS, Opened, open_gateway
from tests.flow.terminal import INTERRUPT, on_terminal
from tests.flow.test_live import SteadyLlm, asked, queue_of, see
from tests.until import until
from tg_cli.live_table import write_figures, write_streams
from tg_cli.top_screen import TopScreen
from tg_client import TgClient
from tg_schema import decode, encode
from tg_schema.live import LiveDocument, LiveGateway, LivePool, LiveProcessor, LiveQueue, LiveStream

TOP = "tg-top"
SMALL = {"LINES": "24", "COLUMNS": "80"}
LONG = "\x1b]0;owned\x07[bold]\u202e" + "x" * 100_000
HOSTILE = LiveDocument(
    whole=True,
    gateway=LONG,
    version=LONG,
    at=1e9,
    window=30.0,
    draining=True,
    totals={"streams": 1_000},
    queues={LONG: LiveQueue(LONG, LONG, LONG, 1, 10**12, 10**12, 10**9, 1e12, 59.9, 60.0, 10**9, "rate-limited")},
    processors={LONG: LiveProcessor(LONG, LONG, 10**9, 10**9, LONG)},
    pools={LONG: LivePool(3, 2, 10**9, 10**9)},
    streams={LONG: LiveStream(LONG, LONG, LONG, LONG, LONG, 0.0, 10**12, begun=True)},
)


@asynccontextmanager
async def running(count: int = 1) -> AsyncIterator[tuple[Opened, list["asyncio.Task[bytes]"]]]:
    """A gateway with streams that say words for ever."""
    async with open_gateway(llm=SteadyLlm()) as it, AsyncExitStack() as stack:
        tasks = [await stack.enter_async_context(asked(it)) for _ in range(count)]
        async with TgClient(it.gateway.url) as client:
            await see(client, lambda it: len(it.streams) == queue_of(it).running == count)
        yield it, tasks


async def test_once_prints_tables_of_79_columns_without_colour() -> None:
    async with running(2) as (it, _):
        for options in (("--once",), ()):
            done = await ran(TOP, *options, "-u", it.gateway.url)
            assert (done.code, done.err) == (0, "")
            lines = done.out.splitlines()
            assert "\x1b" not in done.out
            assert max(map(len, lines)) <= 79
            heads = [line.split()[1] for line in lines if line.startswith(" #")]
            assert heads == ["GATEWAY", "FLOW/SERVICE", "STREAM"]
            assert [
                line for line in lines if line.startswith(" 1 default/text-completion counting         2/256     0")
            ]
            assert "2 streams" in lines
            assert len([line for line in lines if " anybody " in line]) == 2
        again = await ran(TOP, "--once", "-u", it.gateway.url, "-u", it.gateway.url)
        assert "2 streams" in again.out.splitlines()
        assert " 2 default" not in again.out
        async with running(2) as (other, _):
            several = await ran(TOP, "--once", "-u", it.gateway.url, "-u", other.gateway.url)
        assert "4 streams" in several.out.splitlines()
        assert " 2 default/text-completion counting" in several.out


async def test_json_is_the_document() -> None:
    async with running() as (it, _):
        done = await ran(TOP, "--json", "-u", it.gateway.url)
        document = decode(LiveDocument, done.out.encode())
        assert (done.code, document.whole, len(document.streams)) == (0, True, 1)
        assert queue_of(document).running == 1


async def test_what_is_no_gateway_of_ours_is_said() -> None:
    nobody = await ran(TOP, "-u", "http://127.0.0.1:9")
    assert (nobody.code, nobody.out) == (1, "")
    assert "no gateway answers at http://127.0.0.1:9/" in nobody.err
    wrong = await ran(TOP, "-u", "ftp://x", "--json")
    assert wrong.code == 1
    assert json.loads(wrong.out)["error"]["type"] == "bad-request"
    assert (await ran(TOP, "--all")).code == 2
    mounts = tuple(mount for mount in MOUNTS if not mount.path.startswith("/api/v1/live"))
    async with open_gateway(mounts=mounts) as it:
        older = await ran(TOP, "-u", it.gateway.url)
    assert (older.code, older.out) == (1, "")
    assert "has no /api/v1/live, since it is older than this command" in older.err

    async def show(_: web.Request) -> web.Response:
        return web.json_response({"whole": "yes"})

    application = web.Application()
    application.router.add_get("/api/v1/live", show)
    async with TestServer(application) as server:
        other = await ran(TOP, "-u", str(server.make_url("/")))
    assert (other.code, other.out) == (1, "")
    assert "is not what was asked for" in other.err


async def test_a_reader_that_leaves_ends_it() -> None:
    async with running() as (it, _), started(TOP, "--once", "-u", it.gateway.url) as process:
        out_of(process)._transport.close()  # type: ignore[attr-defined]
        assert await asyncio.wait_for(process.wait(), 30) == 141


def test_long_names_fit_into_their_columns() -> None:
    for count in (1, 3):
        rows = [{f"{number}{LONG}": row for row in HOSTILE.streams.values()} for number in range(count)]
        documents = {number: replace(HOSTILE, streams=row) for number, row in enumerate(rows, 1)}
        gateway = LiveGateway(LONG, LONG, True, 10**9, 10**9, 1e12, 10**9)
        for gateways in ({}, {LONG: gateway}):
            documents[1] = replace(documents[1], gateways=gateways)
            head, streams = write_streams(documents)
            lines = [*write_figures(documents), *head, *streams.values()]
            assert max(map(len, lines)) == 79
            assert all("\u2026" in line for line in lines if "x" in line)
            assert head[0] == f"{1000 * count} streams, of which the oldest {count} are listed"


def texts(screen: TopScreen) -> tuple[str, list[str]]:
    """The tables of figures, and the lines of streams."""
    listed = screen.query_one(OptionList)
    return str(screen.query_one("#lines", Static).render()), [str(each.prompt) for each in listed.options]


@asynccontextmanager
async def piloted(*urls: str) -> AsyncIterator[tuple[TopScreen, Pilot[bool]]]:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(TgClient(url, retries=0)) for url in urls]
        documents = {number: await client.live() for number, client in enumerate(clients, 1)}
        screen = TopScreen(clients, documents)
        async with screen.run_test(size=(80, 24), notifications=True) as pilot:
            yield screen, pilot


def told(screen: TopScreen) -> list[str]:
    return [each.message for each in screen._notifications]


async def test_k_stops_the_stream_at_the_cursor() -> None:
    async with running(3) as (it, tasks), piloted(it.gateway.url) as (screen, pilot):
        await until(lambda: len(texts(screen)[1]) == 3)
        # Without a cursor nothing is stopped.
        await pilot.press("k")
        assert told(screen) == []
        await pilot.press("down", "down", "k")
        await until(lambda: sum(task.done() for task in tasks) == 1)
        assert [task.done() for task in tasks].index(True) == 1
        await until(lambda: len(texts(screen)[1]) == 2)
        assert told(screen)[0].startswith("stopped ")
        # The stream that moved to its place is not at the cursor.
        await pilot.press("k")
        assert len(told(screen)) == 1
        await pilot.press("q")
    assert screen.return_value is False


async def test_the_cursor_stays_at_its_stream() -> None:
    async with running(3) as (it, tasks), piloted(it.gateway.url) as (screen, pilot):
        await until(lambda: len(texts(screen)[1]) == 3)
        await pilot.press("down", "down", "down")
        last = texts(screen)[1][2][:12]
        tasks[0].cancel()
        await until(lambda: len(texts(screen)[1]) == 2)
        at = screen.query_one(OptionList).highlighted
        assert at is not None
        assert texts(screen)[1][at][:12] == last


async def test_a_stream_that_has_ended_before_k_is_said() -> None:
    async def refuse(request: web.Request) -> web.Response:
        assert request.path == "/api/v1/live/streams/s-1/stop"
        return web.json_response({"error": {"type": "not-found", "message": "it has ended"}}, status=404)

    row = LiveStream("f", "s", "m", "k", "sse", 0.0, 1, begun=True)
    document = LiveDocument(True, "host:1", "1", 1.0, 1.0, False, {"streams": 1}, streams={"s-1": row})
    async with showing(document, refuse) as url, piloted(url) as (screen, pilot):
        await pilot.press("down", "k")
        await until(lambda: "it has ended" in told(screen))


@asynccontextmanager
async def showing(document: LiveDocument, stop: Handler | None = None) -> AsyncIterator[str]:
    """The URL of a server that says the same of itself for ever."""

    async def show(request: web.Request) -> web.Response:
        if "event-stream" in request.headers["Accept"]:
            return web.Response(body=b"data: %b\n\n" % encode(document), content_type="text/event-stream")
        return web.Response(body=encode(document), content_type="application/json")

    application = web.Application()
    application.router.add_get("/api/v1/live", show)
    if stop is not None:
        application.router.add_post("/api/v1/live/streams/{stream}/stop", stop)
    async with TestServer(application) as server:
        yield str(server.make_url("/"))


def on_one_bus(*names: str, streams: int) -> LiveDocument:
    """What the first of these gateways shows."""
    gateways: dict[str, LiveGateway | None] = {name: LiveGateway(name, "1", False, 1) for name in names}
    rows: dict[str, LiveStream | None] = {
        f"s-{number}": LiveStream("f", "s", "m", "k", "sse", 0.0, 1, begun=True) for number in range(streams)
    }
    return LiveDocument(True, names[0], "1", 1.0, 1.0, False, {"streams": streams}, gateways, streams=rows)


async def test_gateways_of_one_bus_are_shown_once_by_one_that_answers() -> None:
    async with (
        showing(on_one_bus("host:2", "host:1", streams=3)) as second,
        AsyncExitStack() as first,
        piloted(await first.enter_async_context(showing(on_one_bus("host:1", "host:2", streams=2))), second) as (it, _),
    ):
        figures, streams = texts(it)
        assert [line.split()[:2] for line in figures.splitlines()[1:]] == [["1", "host:1"], ["1", "host:2"]]
        assert [line.split()[:2] for line in streams] == [["1", "s-0"], ["1", "s-1"]]
        await first.aclose()
        await until(lambda: len(texts(it)[1]) == 3)
        figures, streams = texts(it)
        assert [line.split()[:2] for line in figures.splitlines()[1:]] == [["2", "host:2"], ["2", "host:1"]]
        assert {line.split()[0] for line in streams} == {"2"}


def test_a_key_that_sees_no_gateways_sees_each_stream_once() -> None:
    whole = on_one_bus("host:1", streams=3)
    documents = {1: replace(whole, gateways={}), 2: replace(whole, gateways={}), 3: on_one_bus("host:1", streams=5)}
    head, streams = write_streams(documents)
    assert head[0] == "5 streams"
    assert list(streams) == [(1, "s-0"), (1, "s-1"), (1, "s-2"), (3, "s-3"), (3, "s-4")]


async def test_a_gateway_that_goes_and_comes_again() -> None:
    """Its last figures stay, with the reason, until it answers again."""
    document = LiveDocument(True, "host:1", "1", 1.0, 1.0, False, {"streams": 0})
    gone = asyncio.Event()

    async def show(request: web.Request) -> web.StreamResponse:
        if "event-stream" not in request.headers["Accept"]:
            return web.Response(body=encode(document), content_type="application/json")
        if gone.is_set():
            changed = LiveDocument(True, "host:2", "1", 1.0, 1.0, False, {"streams": 0})
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(b"data: %b\n\n" % encode(changed))
            return response
        gone.set()
        return web.json_response(
            {"error": {"type": "unavailable", "message": "the gateway is \x1b[31maway"}}, status=503
        )

    application = web.Application()
    application.router.add_get("/api/v1/live", show)
    async with TestServer(application) as server, piloted(str(server.make_url("/"))) as (screen, _):
        await until(lambda: "the gateway is [31maway" in told(screen))
        assert "host:1" in texts(screen)[0]
        await until(lambda: "host:2" in texts(screen)[0])


async def test_hostile_names_neither_move_the_screen_nor_style_it() -> None:
    async with showing(HOSTILE) as url:
        async with piloted(url) as (screen, _):
            await until(lambda: texts(screen)[1])
            figures, (line,) = texts(screen)
            assert "[bold]" in figures
            assert not {"\x1b", "\x07"} & set(figures + line)
        async with on_terminal(TOP, "-u", url, **SMALL) as terminal:
            await terminal.until("1000 streams, of which the oldest 1 are listed")
            assert b"]0;owned\x07" not in terminal.received
            terminal.type("q")
            assert await asyncio.wait_for(terminal.process.wait(), 30) == 0


async def test_a_terminal_of_80_columns_and_24_lines() -> None:
    async with running(2) as (it, _), on_terminal(TOP, "-u", it.gateway.url, **SMALL) as terminal:
        text = await terminal.until(lambda text: text.count(" anybody ") == 2 and "Stop the stream" in text)
        lines = text.splitlines()
        assert len(lines) == 24
        assert lines[0].split() == ["#", "GATEWAY", "STREAMS", "WAIT", "TOK/S", "ERR", "VERSION", "STATE"]
        assert lines[4].startswith(" 1 default/text-completion counting         2/256")
        assert [line.split()[0] for line in lines if line and line[0] == "P"] == ["PROCESSOR"]
        terminal.type(INTERRUPT)
        assert await asyncio.wait_for(terminal.process.wait(), 30) == 130
        # The screen from before is there again, and nothing was said.
        assert b"\x1b[?1049l" in terminal.received
        assert "Traceback" not in terminal.text


async def test_a_signal_ends_it_too() -> None:
    async with running() as (it, _), on_terminal(TOP, "-u", it.gateway.url, **SMALL) as terminal:
        await terminal.until("1 streams")
        os.kill(terminal.process.pid, signal.SIGINT)
        assert await asyncio.wait_for(terminal.process.wait(), 30) == 130
        assert b"\x1b[?1049l" in terminal.received


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
async def test_without_colours(variables: dict[str, str]) -> None:
    async with running() as (it, _), on_terminal(TOP, "-u", it.gateway.url, **SMALL, **variables) as terminal:
        await terminal.until("1 streams")
        if variables.get("TERM") == "dumb":
            assert await asyncio.wait_for(terminal.process.wait(), 30) == 0
            assert b"\x1b" not in terminal.received
        else:
            assert b"\x1b[38;2;" not in terminal.received


async def test_without_the_library_of_the_screen(tmp_path: Path) -> None:
    (tmp_path / "textual.py").write_text("raise ModuleNotFoundError(name=__name__)\n", "utf-8")
    async with running() as (it, _):
        async with on_terminal(TOP, "-u", it.gateway.url, PYTHONPATH=str(tmp_path)) as terminal:
            await terminal.until('pip install "tokengrid-cli[top]"')
            assert await asyncio.wait_for(terminal.process.wait(), 30) == 1
        assert (await ran(TOP, "--once", "-u", it.gateway.url, PYTHONPATH=str(tmp_path))).code == 0
