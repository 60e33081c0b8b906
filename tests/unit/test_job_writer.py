"""The writer of a response's log: its beginning and its end come at once, the rest in batches."""

import asyncio
import itertools
import json
from collections.abc import Mapping

from tests.virtual_time import in_virtual_time
from tg_base.bus import LogWriter
from tg_base.runtime import running
from tg_gateway.jobs.log import PART
from tg_gateway.jobs.writer import BATCH_SECONDS, MAX_BATCH_BYTES, PROMPT_PARTS, JobWriter

PIECES = 50
PACE_SECONDS = BATCH_SECONDS / 10


@in_virtual_time
async def test_the_beginning_and_the_end_come_at_once_and_the_rest_in_batches() -> None:
    loop, came = asyncio.get_running_loop(), list[tuple[float, bytes]]()

    async def append(_: str, body: bytes, properties: Mapping[str, str]) -> None:
        if body:
            came.append((loop.time(), body))

    writer = JobWriter(LogWriter("log", append), keeps_parts=True, alive=5.0, limit=100, part_bytes=1000)
    sent = dict[bytes, float]()
    async with running(writer.run()):
        for number in range(PIECES):
            piece = b"<%d>" % number
            sent[piece] = loop.time()
            writer.send(piece, last=False)
            await asyncio.sleep(PACE_SECONDS)
        await writer.end(b"", "ended")
        ended = loop.time()
    assert b"".join(part for _, part in came) == b"".join(sent)
    for at, part in came[:PROMPT_PARTS]:
        assert at - sent[part] < PACE_SECONDS
    times = [at for at, _ in came[PROMPT_PARTS - 1 :]]
    assert all(later - earlier >= BATCH_SECONDS * 0.99 for earlier, later in itertools.pairwise(times[:-1]))
    # The end waits for no pause.
    assert ended - sent[b"<%d>" % (PIECES - 1)] <= PACE_SECONDS * 1.01


@in_virtual_time
async def test_each_part_is_of_whole_records_however_late_the_end_comes() -> None:
    for size in (10, MAX_BATCH_BYTES + 10):
        bodies, busy = list[bytes](), asyncio.Semaphore(0)

        async def append(
            _: str,
            body: bytes,
            properties: Mapping[str, str],
            bodies: list[bytes] = bodies,
            busy: asyncio.Semaphore = busy,
        ) -> None:
            if properties["kind"] == PART:
                bodies.append(body)
                await busy.acquire()

        log = LogWriter("log", append)
        writer = JobWriter(log, keeps_parts=True, alive=5.0, limit=100, part_bytes=10**6, clock=lambda: 1000.0)
        async with running(writer.run()):
            writer.send(b'{"response":"%b"}\n' % (b"x" * size), last=True)
            # The append is under way when the end comes.
            await asyncio.sleep(1.0)
            ending = asyncio.create_task(writer.end(b"", "ended"))
            await asyncio.sleep(1.0)
            busy.release()
            busy.release()
            assert await ending
        assert [json.loads(line)["at"] for line in b"".join(bodies).splitlines()] == [1000.0]
