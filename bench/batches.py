"""A batch beside interactive requests, over a real Pulsar: what is lost or paid twice, and what requests wait for it.

    python -m bench.batches                               20,000 lines; a process that makes them dies at a third
    python -m bench.batches --lines 2000 --seconds 30     smaller

The same requests arrive every 100 ms, first alone and then beside the batch; their first tokens are compared. Prints
one JSON object: results missing or twice, answers paid twice, lines a second, percentiles of first tokens in ms.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections import Counter
from typing import Final

import openai
from openai.types import Batch

from bench.kept import Line, Row, kill_jobs, open_line
from tests.connected.test_batches import CHAT, client_of, write
from tests.fakes.live_openai import MODEL

PARTS: Final = {"gateway": 2, "jobs": 2, "text-completion": 2}
ANSWER_PIECES: Final = 4
SECONDS_APART: Final = 0.1
"""Between two interactive requests."""
POLL_SECONDS: Final = 1.0


async def time_first_token(line: Line) -> float:
    """Milliseconds to the first piece of one interactive answer, which is read to its end."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "interactive"}], "stream": True}
    began, first = time.perf_counter(), 0.0
    async with line.http.post(f"{line.parts['gateway'][1].url}v1/chat/completions", json=body) as response:
        response.raise_for_status()
        got = b""
        while more := await response.content.readany():
            got += more
            first = first or (1000 * (time.perf_counter() - began) if b"<" in got else 0.0)
    return first


async def time_requests(line: Line, seconds: float) -> list[float]:
    """Ask for so long, at a steady rate."""
    asking = list[asyncio.Task[float]]()
    for _ in range(int(seconds / SECONDS_APART)):
        asking.append(asyncio.create_task(time_first_token(line)))
        await asyncio.sleep(SECONDS_APART)
    return await asyncio.gather(*asking)


async def until_answered(client: openai.AsyncOpenAI, batch: str, lines: int) -> Batch:
    """Wait until `lines` lines have an answer or the batch has ended; returns the batch."""
    while True:
        found = await client.batches.retrieve(batch)
        done = found.request_counts.completed + found.request_counts.failed if found.request_counts else 0
        if done >= lines or found.status not in {"validating", "in_progress"}:
            return found
        await asyncio.sleep(POLL_SECONDS)


async def measure(lines: int, seconds: float) -> Row:
    """Interactive requests alone, then beside the batch, and the batch's results."""
    async with open_line(0.02, PARTS) as line, client_of(line.parts["gateway"][0]) as client:
        line.model.pieces = ANSWER_PIECES
        await time_requests(line, 5)
        alone = await time_requests(line, seconds)
        text = "\n".join(write(number) for number in range(lines))
        file = await client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
        began = time.monotonic()
        batch = await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
        await until_answered(client, batch.id, lines // 20)
        beside = await time_requests(line, seconds)
        await until_answered(client, batch.id, lines // 3)
        await kill_jobs(line)
        batch = await until_answered(client, batch.id, lines)
        while batch.status in {"in_progress", "finalizing"}:
            await asyncio.sleep(POLL_SECONDS)
            batch = await client.batches.retrieve(batch.id)
        took = time.monotonic() - began
        results = (await client.files.content(batch.output_file_id)).content if batch.output_file_id else b""
        named = Counter(json.loads(each)["custom_id"] for each in results.splitlines())
        calls = Counter(each.prompt for each in line.model.generations if each.prompt != "interactive")
        return {
            "lines": lines,
            "status": batch.status,
            "missing": lines - len(named),
            "double": sum(count > 1 for count in named.values()),
            "paid twice": sum(count > 1 for count in calls.values()),
            "lines a second": round(lines / took, 1),
            "first token alone, p50 and p99": _percentiles(alone),
            "first token beside the batch, p50 and p99": _percentiles(beside),
        }


def _percentiles(milliseconds: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(milliseconds, n=100)
    return round(cuts[49], 1), round(cuts[98], 1)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of interactive requests, alone and beside it")
    args = parser.parse_args()
    print(json.dumps(asyncio.run(measure(args.lines, args.seconds))))


if __name__ == "__main__":
    main()
