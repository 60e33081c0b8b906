"""A client that never reads: what it may cost is bounded, it alone is ended, and its neighbours do not notice."""

import asyncio
import json
import tracemalloc
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.fakes.wordy_llm import WORD, WordyLlm
from tests.flow.narrow_gateway import narrow_gateway
from tests.flow.open_gateway import QUICK, open_gateway
from tests.flow.raw_http import RawConnection, raw_connection
from tests.flow.socket_frames import ask, masked, upgrade
from tests.until import until
from tg_base.client.response_stream import MAX_BUFFERED_BYTES
from tg_gateway.access import Limits

PATH = "/api/v1/text-completion"
FLOOD = json.dumps({"prompt": "10000000", "streaming": True}).encode()
HELD = 5 * MAX_BUFFERED_BYTES
"""Bytes of ours for each such stream: its buffer and the record that did not fit (on a busy machine 256 chunks of 4 KiB
join), one event that is written, the transport's own, and what its link keeps until the next acknowledgement."""
GENERATED = 16 * 1024 * 1024
"""Bytes made for each of them at most: the same, the kernel's buffers (tcp_wmem: 4 MiB), what is on its way."""
STUCK = 4


async def flood(raw: RawConnection) -> None:
    """Ask for more than fits anywhere, and read only the head of it."""
    raw.post(PATH, FLOOD)
    await raw.until(b"\r\n\r\n")


async def test_memory_is_bounded_and_the_others_stay_whole() -> None:
    """Four clients that read nothing, beside one that does; their connections are cut, and nothing of them is left."""
    expected = "".join(f"{number} " for number in range(100))
    async with open_gateway(limits=Limits(write=1.5), llm=WordyLlm(), timing=QUICK) as it:
        reading = 0

        async def reads() -> str:
            nonlocal reading
            reading += 1
            async with it.http.post(PATH, json={"prompt": "100"}) as response:
                return str((await response.json())["response"])

        assert await reads() == expected
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            async with AsyncExitStack() as stack:
                for _ in range(STUCK):
                    raw = await stack.enter_async_context(raw_connection(it.address))
                    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
                    raw.post(PATH, FLOOD)
                texts, held = {await reads()}, []
                while streams := REGISTRY.get_sample_value("tg_gateway_streams"):
                    if streams == STUCK:
                        held.append(tracemalloc.get_traced_memory()[0] - before)
                    texts.add(await reads())
        finally:
            tracemalloc.stop()
        assert texts == {expected}
        # The processor keeps what it has sent until the next beat tells it that it has come: the least is what stays.
        assert min(held) < STUCK * HELD
        assert it.llm.generated * len(WORD) < STUCK * GENERATED + len(WORD) * 100 * reading


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_neighbour_on_the_same_model_is_not_delayed(streaming: bool) -> None:
    async with open_gateway(limits=Limits(write=30.0), llm=WordyLlm()) as it, raw_connection(it.address) as raw:
        await flood(raw)
        for _ in range(10):
            async with (
                asyncio.timeout(5),
                it.http.post(PATH, json={"prompt": "50", "streaming": streaming}) as response,
            ):
                assert response.status == 200
                assert b"49 " in await response.read()


KIB = 1024
FOREVER = 10_000_000


def ended(outcome: str) -> float:
    labels = {"door": "socket", "service": "text-completion", "outcome": outcome}
    return REGISTRY.get_sample_value("tg_gateway_requests_total", labels) or 0.0


async def frames(raw: RawConnection, until_complete: int) -> defaultdict[object, list[dict[str, Any]]]:
    """All frames by request, until so many requests are over."""
    found: defaultdict[object, list[dict[str, Any]]] = defaultdict(list)
    complete = 0
    while complete < until_complete:
        size = (await raw.reader.readexactly(2))[1]
        if size > 125:
            size = int.from_bytes(await raw.reader.readexactly(2 if size == 126 else 8), "big")
        said = json.loads(await raw.reader.readexactly(size))
        found[said["id"]].append(said)
        complete += said["complete"]
    return found


async def test_the_streams_that_hold_most_end_and_the_others_go_on() -> None:
    limits = Limits(socket_bytes=256 * KIB, write=60)
    async with (
        narrow_gateway(capacity=8, limits=limits, llm=WordyLlm()) as it,
        raw_connection(("127.0.0.1", int(it.gateway.url.rsplit(":", 1)[1].strip("/")))) as raw,
    ):
        slow, fine = ended("slow-consumer"), ended("ok")
        await upgrade(raw)
        for name in ("a", "b", "c"):
            raw.send(masked(json.dumps(ask(name, FOREVER, streaming=True)).encode()))
        raw.send(masked(json.dumps(ask("small", 100, streaming=True)).encode()))
        raw.send(masked(json.dumps(ask("whole", 100)).encode()))
        await until(lambda: ended("slow-consumer") == slow + 3)
        found = await frames(raw, 5)
        await until(lambda: ended("ok") == fine + 2)
        for name in ("a", "b", "c"):
            *texts, last = found[name]
            assert last["error"]["type"] == "slow-consumer"
            assert "this socket" in last["error"]["message"]
            assert set("".join(one["response"]["response"] for one in texts)) <= {"x"}
        expected = "".join(f"{number} " for number in range(100))
        for name in ("small", "whole"):
            assert "".join(one["response"]["response"] for one in found[name]) == expected
        generated = it.llm.generated
        raw.send(masked(json.dumps(ask("after", 3)).encode()))
        (after,) = (await frames(raw, 1))["after"]
        assert after["response"]["response"] == "0 1 2 "
        assert it.llm.generated == generated + 3
