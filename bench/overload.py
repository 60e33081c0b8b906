"""Offered load of several times the capacity: what the accepted wait, what is answered, what the refused are told.

    python -m bench.overload                 at capacity and at 4 x, three rounds (about four minutes)
    python -m bench.overload --door websocket

One embedded `tg-serve` on the memory bus; the fake provider is a process of its own, the load client is this one.
The model works on 16 requests at once, each of 16 to 48 chunks 40 ms apart, so that its capacity is 12.5 requests a
second; 8 may wait, which is the default. Requests come by chance (a Poisson process with a seed), each on a new
connection, and those that are refused do not come back. Prints a table, and one JSON object to `--json FILE`.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import uvloop
from typing_extensions import override

from bench.load_client import Connection, Stream, percentile
from bench.pipeline import ENVIRONMENT, free_port, provider
from bench.subject import Subject, tokengrid, wait_ready

CAPACITY = 16
SHORTEST, LONGEST = 16, 48
CHUNKS = (SHORTEST + LONGEST) / 2
GAP = 0.04
SECONDS = 30.0
"""Of one measurement, after its queue has found its length."""
SETTLE = 6.0
"""Seconds of the same load before it."""
PATIENCE = 30.0
"""Seconds for a stream to end."""
CONFIGURATION = """
[models.bench]
provider = "openai"
{queue}
options = {{ base_url = "{provider}/v1", key_variable = "BENCH_KEY", capacity = {capacity} }}

[flows.default]
text-completion = {{ model = "bench" }}
"""


class Asked(Connection):
    """A request that may be refused."""

    told = False
    """Whether it was told when to come back."""

    def __init__(self, host: str, door: str, chunks: int, done: asyncio.Future[Stream]) -> None:
        super().__init__(host, door, f"chunks={chunks} gap={1000 * GAP:g}", done)
        self.chunks = chunks

    def whole(self, stream: Stream) -> bool:
        """Whether all of it came."""
        return stream.next == self.chunks and not stream.error

    @override
    def data_received(self, data: bytes) -> None:
        self.told = self.told or b"\r\nRetry-After: " in data or b'"retry_after":' in data
        super().data_received(data)


@dataclass(frozen=True)
class Result:
    """One measurement. Rates are per second, times in milliseconds from the request to its first chunk."""

    offered: float
    accepted: float
    goodput: float
    """Streams that came whole, by the time at which they ended."""
    refused: int
    untold: int
    """Refused requests without a Retry-After."""
    broken: int
    """Accepted, and not whole."""
    first_p50: float
    first_p99: float
    cores: float
    """That the gateway's process used, everything included."""


async def measured(url: str, door: str, rate: float, seed: int, ours: Subject) -> Result:
    """Offer so many requests a second for a while, and look at what became of those in the measured part of it."""
    loop = asyncio.get_running_loop()
    target = urlsplit(url)
    host, port = target.hostname or "127.0.0.1", target.port or 80
    chance = random.Random(seed)
    asked: list[tuple[Asked, asyncio.Future[Stream]]] = []

    async def ask() -> None:
        done: asyncio.Future[Stream] = loop.create_future()
        chunks = chance.randint(SHORTEST, LONGEST)
        _, connection = await loop.create_connection(lambda: Asked(f"{host}:{port}", door, chunks, done), host, port)
        asked.append((connection, done))

    begin = loop.time()
    due = begin
    asking = set()
    begin_ns, cpu = 0, 0.0
    while due < begin + SETTLE + SECONDS:
        due += chance.expovariate(rate)
        await asyncio.sleep(due - loop.time())
        if not begin_ns and due >= begin + SETTLE:
            begin_ns, cpu = time.monotonic_ns(), ours.cpu
        asking.add(asyncio.create_task(ask()))
    end_ns, cpu = time.monotonic_ns(), ours.cpu - cpu
    await asyncio.gather(*asking)
    streams = [(connection, await asyncio.wait_for(done, PATIENCE)) for connection, done in asked]
    return summary(streams, begin_ns, end_ns, cpu)


def summary(asked: list[tuple[Asked, Stream]], begin_ns: int, end_ns: int, cpu: float) -> Result:
    """Of the requests that came within the time, but for goodput, which counts what ended within it."""
    seconds = (end_ns - begin_ns) / 1e9
    inside = [(each, stream) for each, stream in asked if begin_ns <= stream.asked_ns < end_ns]
    accepted = [(each, stream) for each, stream in inside if stream.first_ns]
    refused = [each for each, stream in inside if not stream.first_ns]
    firsts = [stream.first_ns - stream.asked_ns for _, stream in accepted]
    whole = [stream for each, stream in asked if each.whole(stream)]
    return Result(
        offered=len(inside) / seconds,
        accepted=len(accepted) / seconds,
        goodput=sum(begin_ns <= stream.ended_ns < end_ns for stream in whole) / seconds,
        refused=len(refused),
        untold=sum(not each.told for each in refused),
        broken=sum(not each.whole(stream) for each, stream in accepted),
        first_p50=percentile(firsts, 0.5),
        first_p99=percentile(firsts, 0.99),
        cores=cpu / seconds,
    )


def medians(results: list[Result]) -> Result:
    """Field by field; faults are added up."""
    rows = [asdict(result) for result in results]
    added = {"refused", "untold", "broken"}
    return Result(
        **{
            name: sum(row[name] for row in rows) if name in added else statistics.median(row[name] for row in rows)
            for name in rows[0]
        }
    )


def table(rows: dict[float, Result]) -> str:
    """As Markdown."""
    lines = [
        "| offered | requests/s | accepted/s | goodput/s | first chunk p50 / p99, ms | refused | of these without "
    ]
    lines[0] += "Retry-After | broken | cores |"
    lines.append("|---" * 9 + "|")
    for load, row in rows.items():
        firsts = f"{row.first_p50:,.0f} / {row.first_p99:,.0f}"
        rates = f"{row.offered:.1f} | {row.accepted:.1f} | {row.goodput:.1f}"
        counts = f"{row.refused} | {row.untold} | {row.broken} | {row.cores:.2f}"
        lines.append(f"| {load:g} x capacity | {rates} | {firsts} | {counts} |")
    base, most = rows[min(rows)], rows[max(rows)]
    lines.append(f"\nfirst chunk p99: {most.first_p99 / base.first_p99:.2f} x; ")
    lines[-1] += f"goodput: {most.goodput / base.goodput:.2f} x"
    return "\n".join(lines)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--door", choices=["sse", "websocket"], default="sse")
    parser.add_argument("--loads", type=float, nargs="+", default=[1.0, 4.0], help="times the capacity")
    parser.add_argument("--queue", type=int, help="how many may wait; by default what the gateway takes for right")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results: dict[float, list[Result]] = {load: [] for load in args.loads}
    with tempfile.TemporaryDirectory(prefix="tokengrid-bench-") as name, provider(Path(name)) as fake:
        folder, port = Path(name), free_port()
        queue = "" if args.queue is None else f"queue = {args.queue}"
        config = folder / "bench.toml"
        config.write_text(CONFIGURATION.format(provider=fake, capacity=CAPACITY, queue=queue), "utf-8")
        command = tokengrid("--config", str(config), "--port", str(port))
        with Subject("tg-serve", command, folder / "serve.log", ENVIRONMENT) as ours:
            url = f"http://127.0.0.1:{port}"
            wait_ready(url)
            for number in range(args.rounds):
                for load in args.loads:
                    print(f"  round {number + 1} of {args.rounds}: {load:g} x capacity", file=sys.stderr)
                    rate = load * CAPACITY / (CHUNKS * GAP)
                    results[load].append(uvloop.run(measured(url, args.door, rate, number, ours)))
    rows = {load: medians(found) for load, found in results.items()}
    print(table(rows))
    if args.json:
        args.json.write_text(json.dumps({load: asdict(row) for load, row in rows.items()}, indent=1), "utf-8")


if __name__ == "__main__":
    main()
