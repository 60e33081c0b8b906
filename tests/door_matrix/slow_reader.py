"""A client that asks and never reads: what is made for it is bounded, it is cut, and its neighbour gets its answer."""

import asyncio
from typing import Final

from prometheus_client import REGISTRY

from tests.door_matrix.door import Door
from tests.door_matrix.stage import OpenStage
from tests.door_matrix.visit import MODEL
from tests.fakes.wordy_llm import WORD
from tests.flow.raw_http import RawConnection, raw_connection
from tests.flow.socket_frames import masked, upgrade
from tests.until import until
from tg_gateway.access import Limits

PATIENCE_SECONDS: Final = 0.25
"""For which a client may leave unread what waits for it."""
MAX_GENERATED_BYTES: Final = 16 * 1024 * 1024
"""Made for a client that reads nothing: our buffers (1 MiB), the kernel's (4 MiB), and what is on its way."""
ENDLESS, WHOLE = "10000000", "1000"
"""Words of 4 KiB: a stream without end, and a whole answer just below the limit of a record."""


async def read_nothing(door: Door, opening: OpenStage) -> str:
    """Ask through a door, and read only once the gateway has cut the connection."""
    async with opening(limits=Limits(write=PATIENCE_SECONDS)) as it, raw_connection(it.address) as raw:
        ended = _count_ended(door)
        await _ask(door, raw, it.flow)
        await it.llm.started.wait()
        assert (await it.ask(door, "2")).text == "0 1 "
        await until(lambda: _count_ended(door) == ended + 2)
        await asyncio.wait_for(it.llm.stopped.wait(), 30)
        assert it.llm.generated * len(WORD) < MAX_GENERATED_BYTES
        raw.writer.transport.resume_reading()  # type: ignore[attr-defined]
        sent = await raw.rest()
    assert door.last == "" or door.last.encode() not in sent
    assert not sent.endswith(b"0\r\n\r\n")
    assert len(sent) < int(WHOLE) * len(WORD)
    return "connection cut"


async def _ask(door: Door, raw: RawConnection, flow: str) -> None:
    path = door.path.format(flow=flow)
    body = door.make_question(flow, MODEL, WHOLE if door.way == "body" else ENDLESS).encode()
    if door.way == "socket":
        await upgrade(raw, path=path)
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
    if door.way == "socket":
        raw.send(masked(body))
    else:
        raw.post(path, body)


def _count_ended(door: Door) -> float:
    """Requests that are over, of this process; of a socket, those that have left it."""
    kind = {"events": "sse", "body": "http", "socket": "socket"}[door.way]
    return sum(
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == "tg_gateway_requests_total" and sample.labels["door"] == kind
    )
