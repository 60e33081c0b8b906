"""One socket whose client does not read: what waits for it is bounded as a whole, and the greedy streams end alone."""

import json
from collections import defaultdict
from typing import Any

from prometheus_client import REGISTRY

from tests.fakes.wordy_llm import WordyLlm
from tests.flow.narrow_gateway import narrow_gateway
from tests.flow.raw_http import RawConnection, raw_connection
from tests.flow.socket_frames import ask, masked, upgrade
from tests.until import until
from tg_gateway.access import Limits

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
