"""Streams that are kept, over a real Pulsar: restarts and deaths under them, reconnects, and what keeping costs.

    python -m bench.kept restart --streams 400       two gateways, two jobs, three processors, each replaced in turn
    python -m bench.kept gateway --streams 100       SIGKILL of one of two gateways
    python -m bench.kept jobs --streams 100          SIGKILL of the process that makes the streams, beside a second one
    python -m bench.kept reconnect --streams 10000   reconnect to the first missed event, through another gateway
    python -m bench.kept cost --streams 64           CPU of ours and of the broker, beside streams that are not kept

Clients read on through any gateway that lives. Prints one JSON object: texts that are whole and byte-equal to what the
model sent, answers that were paid twice, generations that stopped, the longest pauses of readers, percentiles in ms.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from bench.child import cpu_of
from tests.connected.pipeline import Part, Pipeline, pipeline
from tests.connected.test_responses_made_apart import until_known
from tests.fakes.live_openai import PIECE, LiveOpenAi
from tests.flow.kept_streams import KEEP, Reader
from tests.pulsar_server import PulsarServer
from tests.until import until

PARTS: Final = {"gateway": 2, "jobs": 2, "text-completion": 3}
BEGINNERS: Final = 32
"""Requests that begin at a time."""
ANSWER_PIECES: Final = 50
"""Of an answer under a restart: ten seconds of it."""
Row = dict[str, Any]


@dataclass
class Line:
    """The processes under measurement.

    Attributes:
        parts: those that live, by their part.
        readers: all clients so far.
    """

    pipeline: Pipeline
    model: LiveOpenAi
    http: ClientSession
    broker: int
    parts: dict[str, list[Part]]
    readers: list["Client"] = field(default_factory=list)

    @property
    def url(self) -> str:
        """A gateway."""
        return random.choice(self.parts["gateway"]).url

    async def replace(self, part: str) -> None:
        """Start another process of this part, then end the oldest one in order."""
        started = await self.pipeline.start(part)
        if part == "gateway":
            await until_known(started, self.pipeline.flow)
        self.parts[part].append(started)
        old = self.parts[part].pop(0)
        old.process.terminate()
        await old.stopped(60)

    def processor_seconds(self) -> dict[str, float]:
        """CPU so far: of our parts, and of the broker."""
        ours = {part: sum(cpu_of(each.process.pid) or 0.0 for each in found) for part, found in self.parts.items()}
        return ours | {"broker": cpu_of(self.broker) or 0.0}


@dataclass
class Client:
    """One reader of a stream, who reads on wherever it can.

    Attributes:
        events: numbered ones, each once.
        pause: the longest time between two reads.
        cuts: connections that it lost.
        error: the last event, where it is an error.
    """

    line: Line
    number: int
    name: str = ""
    events: bytes = b""
    last: int = -1
    pause: float = 0.0
    cuts: int = 0
    error: str = ""

    @property
    def pieces(self) -> int:
        """Pieces of the text so far."""
        return len(PIECE.findall(self.events.decode()))

    @property
    def whole(self) -> bool:
        """Whether it is the whole text of one generation."""
        places = [place for _, place in PIECE.findall(self.events.decode())]
        return places == [*(str(each) for each in range(len(places) - 1)), "end"]

    async def read(self) -> None:
        """Until the end of the stream."""
        while not (self.whole or self.error):
            try:
                await self._read_once()
            except (ClientError, OSError, TimeoutError):
                self.cuts += 1
                await asyncio.sleep(0.05)

    async def _read_once(self) -> None:
        line = self.line
        if self.name:
            asking = line.http.get(f"{line.url}v1/streams/{self.name}", params={"offset": str(self.last)})
        else:
            path = f"{line.url}api/v1/flow/{line.pipeline.flow}/service/text-completion"
            key = f"{line.pipeline.flow}-{self.number}"
            body = {"prompt": f"p{self.number}", "streaming": True}
            asking = line.http.post(path, json=body, headers=KEEP | {"Idempotency-Key": key})
        async with asking as response:
            response.raise_for_status()
            reader = Reader(response)
            self.name = self.name or reader.name
            before, came = self.events, time.monotonic()
            while more := await response.content.readany():
                self.pause, came = max(self.pause, time.monotonic() - came), time.monotonic()
                reader.got += more
                self.events = before + reader.events
                self.last = max([self.last, *reader.numbers[-1:]])
            if b'"error":{' in reader.got:
                self.error = reader.got[reader.got.rindex(b'"error":{') :].decode()


@asynccontextmanager
async def open_line(pace: float, parts: dict[str, int]) -> AsyncIterator[Line]:
    """All of it, which serves."""
    with tempfile.TemporaryDirectory(prefix="tokengrid-bench-") as folder, PulsarServer() as pulsar:
        async with (
            LiveOpenAi.listening(pace) as model,
            pipeline(model.url, pulsar.service_url, Path(folder)) as made,
            ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None, sock_read=60)) as http,
        ):
            made.file = made.configuration(made.flow, capacity=4096, queue=20000)
            made.file.write_text(made.file.read_text("utf-8").replace("drain = 2", "drain = 30"), "utf-8")
            started = {part: [await made.start(part) for _ in range(count)] for part, count in parts.items()}
            for gateway in started["gateway"]:
                if "jobs" in started:
                    await until_known(gateway, made.flow)
            yield Line(made, model, http, pulsar.pid, started)


async def under_streams(line: Line, streams: int, fault: Callable[[Line], Awaitable[None]]) -> Row:
    """Run a number of streams, cause the fault while they run, and report how each of them ended."""
    over = asyncio.Event()

    async def ask_on(number: int) -> None:
        """One stream after the other, until the fault is over; at least one that began before it."""
        for turn in count():
            client = Client(line, streams * turn + number)
            line.readers.append(client)
            await client.read()
            if over.is_set():
                return

    asking = list[asyncio.Task[None]]()
    for number in range(streams):
        asking.append(asyncio.create_task(ask_on(number)))
        await asyncio.sleep(0.02)
    await until(lambda: all(client.pieces > 1 for client in line.readers[:streams]))
    began = time.monotonic()
    await fault(line)
    seconds, left = time.monotonic() - began, sum(each.left.is_set() for each in line.model.generations)
    before = [(client, client.pieces) for client in line.readers]
    await until(lambda: all(client.whole or client.pieces > pieces for client, pieces in before))
    over.set()
    line.model.finish.set()
    async with asyncio.timeout(120):
        await asyncio.gather(*asking)
    calls = [len(line.model.of(f"p{client.number}")) for client in line.readers]
    pauses = sorted(client.pause for client in line.readers)
    return {
        "streams at a time": streams,
        "streams": len(line.readers),
        "whole": sum(client.whole for client in line.readers),
        "of one call": calls.count(1),
        "paid twice": sum(each > 1 for each in calls),
        "generations stopped": left,
        "connections lost": sum(client.cuts for client in line.readers),
        "errors": sorted({client.error for client in line.readers if client.error})[:9],
        "pause p50 s": round(statistics.median(pauses), 2),
        "pause max s": round(pauses[-1], 2),
        "fault s": round(seconds, 1),
    }


async def restart(line: Line) -> None:
    """Replace every process in turn."""
    for part, number in PARTS.items():
        for _ in range(number):
            await line.replace(part)


async def kill_gateway(line: Line) -> None:
    """Kill one gateway; its clients go to the other one."""
    dead = line.parts["gateway"].pop(0)
    dead.process.kill()
    await dead.stopped(15)


async def kill_jobs(line: Line) -> None:
    """Kill one of two processes that make the streams."""
    dead = line.parts["jobs"].pop(0)
    dead.process.kill()
    await dead.stopped(15)


async def reconnect(line: Line, streams: int) -> Row:
    """Keep many streams that have ended; then begin others, leave each, and read it on through a gateway."""
    line.model.finish.set()
    for first in range(0, streams, BEGINNERS):
        some = [Client(line, number) for number in range(first, min(first + BEGINNERS, streams))]
        await asyncio.gather(*(client.read() for client in some))
    line.model.finish.clear()
    took = list[float]()
    for number in range(200):
        client = Client(line, streams + number)
        reading = asyncio.create_task(client.read())
        await until(lambda client=client: client.pieces > 0)  # type: ignore[misc]
        reading.cancel()
        await asyncio.wait([reading])
        began, url = time.perf_counter(), line.parts["gateway"][number % 2].url
        async with line.http.get(f"{url}v1/streams/{client.name}", params={"offset": "-1"}) as response:
            await response.content.readany()
            took.append(1000 * (time.perf_counter() - began))
        async with line.http.post(f"{url}v1/streams/{client.name}/cancel"):
            pass
    cuts = statistics.quantiles(took, n=100)
    return {"kept": streams, "reconnect p50 ms": round(cuts[49], 1), "reconnect p99 ms": round(cuts[98], 1)}


async def cost(line: Line, streams: int, chunks: int = 800) -> Row:
    """CPU for 1,000 chunks, kept and not, in turns."""
    found: dict[str, list[dict[str, float]]] = {"kept": [], "unkept": []}
    for _ in range(5):
        for name, rows in found.items():
            before = line.processor_seconds()
            counts = await asyncio.gather(*(read_some(line, name == "kept", chunks) for _ in range(streams)))
            after = line.processor_seconds()
            rows.append({part: 1000 * (after[part] - before[part]) / sum(counts) for part in after})
    row: Row = {"streams": streams}
    for name, rows in found.items():
        row[name] = {f"{part} s": round(statistics.median(each[part] for each in rows), 3) for part in rows[0]}
    return row | {"ratio": round(sum(row["kept"].values()) / sum(row["unkept"].values()), 2)}


async def read_some(line: Line, kept: bool, chunks: int) -> int:
    """Read until `chunks` events have come, then stop the stream; returns how many came."""
    path = f"{line.url}api/v1/flow/{line.pipeline.flow}/service/text-completion"
    got = b""
    body = {"prompt": "cost", "streaming": True}
    async with line.http.post(path, json=body, headers=KEEP if kept else {}) as response:
        while got.count(b"data:") < chunks and (more := await response.content.readany()):
            got += more
        if kept:
            async with line.http.post(f"{line.url}v1/streams/{response.headers['X-Stream-Id']}/cancel"):
                pass
    return got.count(b"data:")


async def measure(scene: str, streams: int) -> Row:
    """One scene."""
    parts = PARTS if scene == "restart" else PARTS | {"text-completion": 1}
    async with open_line(0.03 if scene == "cost" else 0.2, parts) as line:
        match scene:
            case "restart":
                line.model.pieces = ANSWER_PIECES
                return await under_streams(line, streams, restart)
            case "gateway":
                return await under_streams(line, streams, kill_gateway)
            case "jobs":
                return await under_streams(line, streams, kill_jobs)
            case "reconnect":
                return await reconnect(line, streams)
            case _:
                return await cost(line, streams)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", choices=("restart", "gateway", "jobs", "reconnect", "cost"))
    parser.add_argument("--streams", type=int, default=100)
    args = parser.parse_args()
    print(json.dumps({args.scene: asyncio.run(measure(args.scene, args.streams))}))


if __name__ == "__main__":
    main()
