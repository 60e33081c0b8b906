"""What the gateway's process holds: at rest, for each idle socket, for each slow stream, and after a million chunks.

python -m bench.memory                      one embedded `tg-serve` with the fake provider; prints one JSON object
python -m bench.memory --crowd 4096         that many streams at once: at rest, at the peak, after one and five minutes
python -m bench.memory --crowd 4096 --pulsar --door websocket
PYTHONMALLOC=malloc python -m bench.memory --crowd 4096
"""

import argparse
import asyncio
import itertools
import json
import resource
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from bench.load_client import Connection, Stream, handshake, masked, run, summary
from bench.pipeline import ENVIRONMENT, FLAT_OUT, MANY, free_port, load, provider, started
from bench.subject import Subject, tokengrid, wait_ready
from tests.pulsar_server import PulsarServer

SOCKETS = 2000
STREAMS = 500
MILLION = 1_000_000
CROWDED = """
[models.bench]
provider = "openai"
queue = 10000
options = {{ base_url = "{provider}/v1", key_variable = "BENCH_KEY", capacity = 10000 }}

[flows.default]
text-completion = {{ model = "bench" }}
"""
"""The configuration for streams that are all answered at once."""
SPREAD_SECONDS = 15.0
"""Over which the streams of a crowd begin."""
AFTER_MINUTES = (1, 5)


async def _opened(host: str, port: int) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(handshake(f"{host}:{port}") + masked(b'{"type":"auth","token":""}'))
    await reader.readuntil(b"auth-ok")
    return writer


async def idle_sockets(url: str, ours: Subject) -> float:
    """KiB for each open, authenticated WebSocket that says nothing."""
    target = urlsplit(url)
    before = ours.resident
    writers = [await _opened(target.hostname or "", target.port or 80) for _ in range(SOCKETS)]
    held = 1024 * (ours.resident - before) / SOCKETS
    for writer in writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
    return held


async def held_streams(url: str, ours: Subject) -> float:
    """KiB for each stream of one chunk a second, through every layer of the process."""
    loop = asyncio.get_running_loop()
    target = urlsplit(url)
    host, port = target.hostname or "", target.port or 80
    before = ours.resident
    done: list[asyncio.Future[Stream]] = []
    for _ in range(STREAMS):
        end: asyncio.Future[Stream] = loop.create_future()
        done.append(end)
        await loop.create_connection(
            lambda end=end: Connection(f"{host}:{port}", "sse", "chunks=4 gap=1000", end),  # type: ignore[misc]
            host,
            port,
        )
    await asyncio.sleep(2)
    held = 1024 * (ours.resident - before) / STREAMS
    await asyncio.gather(*done)
    return held


def measure(folder: Path) -> dict[str, object]:
    """All of it, in one process's life."""
    with provider(folder) as fake:
        url, common = started(folder, fake, "memory://")
        with Subject("tg-serve", tokengrid(*common), folder / "serve.log", ENVIRONMENT) as ours:
            wait_ready(url)
            result: dict[str, object] = {"at_rest_mib": round(ours.resident, 1)}
            load(url, "sse", FLAT_OUT, [ours])
            result["after_first_load_mib"] = round(ours.resident, 1)
            result["kib_per_stream"] = round(uvloop.run(held_streams(url, ours)), 1)
            result["kib_per_idle_socket"] = round(uvloop.run(idle_sockets(url, ours)), 1)
            before, chunks = ours.resident, 0
            result["before_million_mib"] = round(before, 1)
            while chunks < MILLION:
                row = load(url, "sse", FLAT_OUT, [ours])
                chunks += row["chunks"]
                print(f"  {chunks:,} chunks: {ours.resident:.1f} MiB", file=sys.stderr)
            result["after_million_mib"] = round(ours.resident, 1)
            return result


def together(seen: list[Stream]) -> int:
    """The most of these streams that had begun and not ended at the same time."""
    steps = [(stream.first_ns, 1) for stream in seen] + [(stream.ended_ns, -1) for stream in seen]
    running = itertools.accumulate(step for _, step in sorted(steps))
    return max(running)


async def peak(url: str, door: str, streams: int, subjects: list[Subject]) -> tuple[list[float], dict[str, int]]:
    """The most MiB of each process while the streams run, and what they saw."""
    asking = run(url, door, "chunks=6 gap=6000", streams=streams, limit=300, spread=SPREAD_SECONDS)
    task = asyncio.create_task(asking)
    most = [0.0 for _ in subjects]
    while not task.done():
        await asyncio.wait([task], timeout=0.5)
        most = [max(before, subject.resident) for before, subject in zip(most, subjects, strict=True)]
    seen = task.result()
    result = summary(seen, 6)
    return most, {"together": together(seen), "missing": result.missing, "errors": len(result.errors)}


def crowd(folder: Path, door: str, streams: int, *, pulsar: bool) -> dict[str, object]:
    """Memory that `streams` concurrent streams take in each process, and what is left of it after them."""
    with ExitStack() as stack:
        fake = stack.enter_context(provider(folder))
        bus = stack.enter_context(PulsarServer()).service_url if pulsar else "memory://"
        config, port = folder / "crowd.toml", free_port()
        config.write_text(CROWDED.format(provider=fake), "utf-8")
        common = ["--config", str(config), "--bus", bus, "--port", str(port), "--log-level", "warning"]
        commands = {name: ["--only", name, *common] for name in ("gateway", "text-completion")}
        subjects = [
            stack.enter_context(Subject(name, tokengrid(*command), folder / f"{name}.log", ENVIRONMENT))
            for name, command in (commands if pulsar else {"tg-serve": common}).items()
        ]
        url = f"http://127.0.0.1:{port}"
        wait_ready(url)
        load(url, door, MANY, subjects)
        time.sleep(3)
        rest = [subject.resident for subject in subjects]
        most, seen = uvloop.run(peak(url, door, streams, subjects))
        found: dict[str, object] = {"door": door, "streams": streams, **seen}
        rows: dict[str, dict[str, float]] = {}
        for subject, before, held in zip(subjects, rest, most, strict=True):
            per_stream = round(1024 * (held - before) / seen["together"], 1)
            rows[subject.name] = {"rest_mib": round(before), "peak_mib": round(held), "kib_per_stream": per_stream}
        ended = time.monotonic()
        for minutes in AFTER_MINUTES:
            time.sleep(max(0.0, ended + 60 * minutes - time.monotonic()))
            for subject, before in zip(subjects, rest, strict=True):
                rows[subject.name][f"after_{minutes}_min_mib"] = round(subject.resident)
                rows[subject.name][f"after_{minutes}_min_over_rest"] = round(subject.resident / before, 2)
            print(f"  {rows}", file=sys.stderr)
        return found | {"processes": rows}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crowd", type=int, metavar="STREAMS")
    parser.add_argument("--door", default="sse")
    parser.add_argument("--pulsar", action="store_true", help="a gateway and a processor of their own")
    args = parser.parse_args()
    # The processes inherit it: a stream takes three descriptors.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="tokengrid-bench-") as folder:
        if args.crowd is None:
            print(json.dumps(measure(Path(folder))))
        else:
            print(json.dumps(crowd(Path(folder), args.door, args.crowd, pulsar=args.pulsar)))


if __name__ == "__main__":
    main()
