"""What the gateway's process holds: at rest, for each idle socket, for each slow stream, and after a million chunks.

python -m bench.memory          one embedded `tg-serve` with the fake provider; prints one JSON object
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from bench.load_client import Connection, Stream, handshake, masked
from bench.pipeline import ENVIRONMENT, FLAT_OUT, load, provider, started
from bench.subject import Subject, tokengrid, wait_ready

SOCKETS = 2000
STREAMS = 500
MILLION = 1_000_000


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


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory(prefix="tokengrid-bench-") as folder:
        print(json.dumps(measure(Path(folder))))


if __name__ == "__main__":
    main()
