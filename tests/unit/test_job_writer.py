"""The writer of a response's log: its beginning and its end come at once, the rest in batches."""

import asyncio
import itertools
from collections.abc import Mapping

from tests.virtual_time import in_virtual_time
from tg_base.bus import LogWriter
from tg_base.runtime import running
from tg_gateway.jobs.writer import BATCH_SECONDS, PROMPT_PARTS, JobWriter

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
