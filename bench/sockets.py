"""One gateway under very many clients: 10,000 idle WebSockets, and 2,000 slow streams, beside 200 fast ones.

    python -m bench.sockets          prints a table, and one JSON object to `--json FILE`

A real Pulsar, a `tg-serve --only gateway`, and one processor whose model only tells the time: each chunk carries the
moment in which it was made, so the fast streams' readers can tell what the way took. All clients are processes of their
own. An idle socket has said its auth frame and answers pings; a slow stream gets one chunk in five seconds; a fast one
five in a second. Memory is the gateway's.

As many fast streams run at the same time through a second gateway that nobody else uses: what the machine's other work
does to latency hits both, so the ratio of the two in the same seconds says what the crowd does.
"""

import argparse
import asyncio
import json
import re
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import uvloop
from typing_extensions import override

from bench.child import Child, listen, say
from bench.load_client import Connection, Stream, handshake, masked, run, summary
from bench.pipeline import free_port
from bench.subject import Subject, tokengrid, wait_ready
from tests.pulsar_server import PulsarServer
from tg_base.bus import open_bus
from tg_base.config import ConfigWatcher
from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_base.server import Processor
from tg_base.telemetry import configure_log
from tg_schema import TextCompletionRequest

CONFIGURATION = """
[models.bench]
provider = "openai"
[flows.default]
text-completion = { model = "bench" }
"""
CAPACITY = 4096
SETTING = re.compile(r"(chunks|gap)=([0-9.]+)")
FAST = 5
"""Chunks a second of a fast stream."""
GAP = 5.0
"""Seconds between two chunks of a slow stream."""
PING, PONG = b"\x89\x00", b"\x8a\x80\0\0\0\0"
AT_A_TIME = 50
"""Connections that one client process opens side by side."""


class ClockLlm(LlmService):
    """Says `<index>:<ns>` as often and as fast as the prompt wants: `chunks=100 gap=100`."""

    capacity = CAPACITY

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        plan = dict(SETTING.findall(request.prompt or ""))
        loop, gap = asyncio.get_running_loop(), float(plan["gap"]) / 1000
        start = loop.time()
        for index in range(int(plan["chunks"])):
            await asyncio.sleep(start + index * gap - loop.time())
            yield LlmChunk(f"{index}:{time.monotonic_ns()} ")
        yield LlmChunk("", finish_reason="stop")


async def _process(config: Path, url: str) -> None:
    """In a child: the processor, until killed."""
    configure_log("json", "warning")
    read = ConfigWatcher(config).config
    async with open_bus(url) as bus:
        model = ClockLlm("bench", ProviderOptions())
        async with Processor(bus, read.topics, model, read.routes("text-completion"), models=("bench",)):
            say("ready")
            await asyncio.Event().wait()


class _IdleSocket(asyncio.Protocol):
    """A WebSocket that says its auth frame, and then nothing but what every client has to: a pong to each ping."""

    def __init__(self, host: str, opened: asyncio.Future[None]) -> None:
        self._host = host
        self._opened = opened
        self.open = True

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(handshake(self._host) + masked(b'{"type":"auth","token":""}'))

    @override
    def data_received(self, data: bytes) -> None:
        if not self._opened.done():
            if b"auth-ok" in data:
                self._opened.set_result(None)
            return
        self._transport.write(PONG * data.count(PING))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if not self._opened.done():
            self._opened.set_exception(ConnectionError("a socket was refused"))


class _Crowd:
    """In a child: clients that hold what they have opened."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._host, self._port = target.hostname or "", target.port or 80
        self._turn = asyncio.Semaphore(AT_A_TIME)
        self._sockets: list[_IdleSocket] = []
        self._streams: list[asyncio.Future[Stream]] = []

    async def sockets(self, count: int) -> int:
        """Open idle WebSockets; how many there are."""
        await asyncio.gather(*(self._socket() for _ in range(count)))
        return sum(socket.open for socket in self._sockets)

    async def _socket(self) -> None:
        async with self._turn:
            opened = asyncio.get_running_loop().create_future()
            socket = _IdleSocket(f"{self._host}:{self._port}", opened)
            await asyncio.get_running_loop().create_connection(lambda: socket, self._host, self._port)
            await asyncio.wait_for(opened, 60)
            self._sockets.append(socket)

    async def streams(self, count: int, prompt: str) -> int:
        """Open slow streams over SSE, spread so that their chunks are; how many there are."""
        loop = asyncio.get_running_loop()
        for _ in range(count):
            done: asyncio.Future[Stream] = loop.create_future()
            self._streams.append(done)
            await loop.create_connection(
                lambda done=done: Connection(f"{self._host}:{self._port}", "sse", prompt, done),  # type: ignore[misc]
                self._host,
                self._port,
            )
            await asyncio.sleep(GAP / count)
        return len(self._streams)

    async def ended(self, seconds: float) -> dict[str, Any]:
        """Wait for the streams; what became of them, and how many sockets are still open."""
        await asyncio.wait(self._streams, timeout=seconds)
        seen = [done.result() for done in self._streams if done.done()]
        return {
            "ended": sum(not stream.error for stream in seen),
            "missing": sum(stream.missing for stream in seen),
            "repeated": sum(stream.repeated for stream in seen),
            "errors": sorted({stream.error for stream in seen if stream.error}),
            "unfinished": len(self._streams) - len(seen),
            "sockets_open": sum(socket.open for socket in self._sockets),
        }


async def _hold(url: str) -> None:
    """In a child: do what the parent says, line by line."""
    crowd = _Crowd(url)
    while line := await asyncio.to_thread(listen):
        order, *rest = line.split(maxsplit=2)
        if order == "sockets":
            say(await crowd.sockets(int(rest[0])))
        elif order == "streams":
            say(await crowd.streams(int(rest[0]), rest[1]))
        else:
            say(await crowd.ended(float(rest[0])))


async def _fast(url: str, streams: int, chunks: int) -> None:
    """In a child: fast streams; what they saw."""
    seen = await run(url, "sse", f"chunks={chunks} gap={1000 / FAST:g}", streams=streams, limit=120, spread=2.0)
    say(asdict(summary(seen, chunks)))


def fast(url: str, streams: int, seconds: float) -> dict[str, Any]:
    """One run of the fast streams."""
    with Child(
        "bench.sockets", "--role", "fast", "--url", url, "--count", str(streams), "--chunks", str(int(seconds * FAST))
    ) as child:
        row: dict[str, Any] = child.hear()
        return row


def compared(pairs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians over the runs of what both gateways' streams saw, and of their ratio in each run."""
    found: dict[str, Any] = {}
    for field in ("first_p99", "steady_p50", "steady_p99"):
        for place, name in enumerate(("crowded", "quiet")):
            found[f"{field}_{name}"] = round(statistics.median(pair[place][field] for pair in pairs), 2)
    ratios = [crowded["steady_p99"] / quiet["steady_p99"] for crowded, quiet in pairs]
    found["ratios"], found["ratio"] = [round(each, 2) for each in ratios], round(statistics.median(ratios), 2)
    found["missing"] = sum(row["missing"] for pair in pairs for row in pair)
    found["errors"] = sorted({error for pair in pairs for row in pair for error in row["errors"]})
    return found


def measure(args: argparse.Namespace, folder: Path, stack: ExitStack) -> dict[str, Any]:
    """All of it, in one gateway's life."""
    server = stack.enter_context(PulsarServer())
    config = folder / "sockets.toml"
    config.write_text(CONFIGURATION, "utf-8")
    bus = ["--config", str(config), "--bus", server.service_url]
    processor = stack.enter_context(
        Child("bench.sockets", "--role", "processor", "--url", server.service_url, "--config", str(config))
    )
    assert processor.hear() == "ready"
    gateways = []
    for name in ("crowded", "quiet"):
        port = free_port()
        command = tokengrid(*bus, "--only", "gateway", "--port", str(port), "--log-level", "warning")
        gateways.append((stack.enter_context(Subject(name, command, folder / f"{name}.log")), port))
    urls = [f"http://127.0.0.1:{port}" for _, port in gateways]
    for each in urls:
        wait_ready(each)
    (gateway, _), url = gateways[0], urls[0]
    holders = [stack.enter_context(Child("bench.sockets", "--role", "holder", "--url", url)) for _ in range(2)]
    result: dict[str, Any] = {"sockets": args.sockets, "slow_streams": args.streams, "fast_streams": args.fast}

    def told(order: str) -> list[Any]:
        for holder in holders:
            holder.tell(order)
        return [holder.hear() for holder in holders]

    def fasts(name: str) -> None:
        with ThreadPoolExecutor(2) as pool:
            pairs = [list(pool.map(lambda to: fast(to, args.fast, args.seconds), urls)) for _ in range(args.runs)]
        result[name] = pair = compared(pairs)
        print(f"  {name}: {json.dumps(pair)}", file=sys.stderr)

    fast(url, args.fast, args.seconds)
    result["at_rest_mib"] = gateway.resident
    fasts("alone")
    before = gateway.resident
    opened = time.monotonic()
    result["sockets_opened"] = sum(told(f"sockets {args.sockets // 2}"))
    result["sockets_seconds"] = time.monotonic() - opened
    result["kib_per_socket"] = 1024 * (gateway.resident - before) / args.sockets
    fasts("beside the sockets")
    before = gateway.resident
    chunks = 12 + int((args.seconds + 8) * args.runs / GAP)
    told(f"streams {args.streams // 2} chunks={chunks} gap={1000 * GAP:g}")
    time.sleep(GAP)
    result["kib_per_stream"] = 1024 * (gateway.resident - before) / args.streams
    cpu, at = gateway.cpu, time.monotonic()
    time.sleep(5)
    result["cores_of_slow_streams"] = (gateway.cpu - cpu) / (time.monotonic() - at)
    fasts("beside sockets and slow streams")
    result["held"] = told(f"ended {chunks * GAP + 60}")
    result["at_end_mib"] = gateway.resident
    return result


def shown(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    columns = ("fast streams", "first token p99, ms", "added p50, ms", "p99, ms", "p99 of the quiet one", "ratio")
    lines = [f"| {' | '.join(columns)} | of each run | missing |", "|---" * (len(columns) + 2) + "|"]
    for name in ("alone", "beside the sockets", "beside sockets and slow streams"):
        row = result[name]
        cells = [row[key] for key in ("first_p99_crowded", "steady_p50_crowded", "steady_p99_crowded")]
        cells += [row["steady_p99_quiet"], row["ratio"], ", ".join(map(str, row["ratios"])), row["missing"]]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    sockets, streams = result["kib_per_socket"], result["kib_per_stream"]
    lines += [
        "",
        f"{result['sockets_opened']:,} sockets opened in {result['sockets_seconds']:.0f} s: {sockets:.1f} KiB each",
    ]
    lines.append(
        f"{result['slow_streams']:,} slow streams: {streams:.1f} KiB each, {result['cores_of_slow_streams']:.2f} cores"
    )
    lines.append(f"gateway: {result['at_rest_mib']:.0f} MiB at rest, {result['at_end_mib']:.0f} at the end")
    lines += [f"held by a client process: {held}" for held in result["held"]]
    return "\n".join(lines)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sockets", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--fast", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0, help="for one run of the fast streams")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--role", choices=["processor", "holder", "fast"], help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--config", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--chunks", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    # Children inherit it: as many descriptors as the system lets us have.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if args.role == "processor":
        uvloop.run(_process(args.config, args.url))
    elif args.role == "holder":
        uvloop.run(_hold(args.url))
    elif args.role == "fast":
        uvloop.run(_fast(args.url, args.count, args.chunks))
    else:
        with tempfile.TemporaryDirectory(prefix="tokengrid-sockets-") as folder, ExitStack() as stack:
            result = measure(args, Path(folder), stack)
        print(shown(result))
        if args.json:
            args.json.write_text(json.dumps(result, indent=1), "utf-8")


if __name__ == "__main__":
    main()
