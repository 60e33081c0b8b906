"""How long a requestor counts as alive: requests whose age is not known, maybe a dead one's queue, prolong it once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from tg_base.bus.memory import MemoryBus
from tg_base.protocol import Heartbeat, HeartbeatTiming, LinkStream, StreamKey
from tg_base.server.link_pool import RETURN_HEARTBEATS, LinkPool

INBOX = "non-persistent://public/default/inbox"
TIMING = HeartbeatTiming()
DEAD = TIMING.dead_after
GRACE = RETURN_HEARTBEATS * TIMING.interval


class Requests:
    """A requestor's requests, each of which opens a stream, and the clock by which they come."""

    def __init__(self) -> None:
        self.now = 0.0
        self.bus = MemoryBus()
        self.pool = LinkPool(self.bus, "p", TIMING, lambda: self.now)
        self._numbers = count()
        self._streams: list[LinkStream] = []

    async def take(self, delay: float | None = None, least_delay: float = 0.0) -> None:
        stream = LinkStream(self.pool.to(INBOX, delay, least_delay), StreamKey(str(next(self._numbers)), 1), 5.0)
        stream.open()
        self._streams.append(stream)

    def end(self) -> int:
        """End the streams of a dead requestor, as its host does; returns how many there were."""
        ended = len(self.pool.silent(DEAD))
        for stream in self._streams if ended else ():
            stream.close()
        return ended


@asynccontextmanager
async def dead() -> AsyncIterator[Requests]:
    """A requestor that was silent for so long that its link was closed."""
    requests = Requests()
    await requests.take()
    requests.now += DEAD + 0.1
    assert requests.end() == 1
    await requests.pool.sweep(DEAD)
    assert requests.pool.find(INBOX) is None
    yield requests
    await requests.pool.aclose(0.0)
    await requests.bus.aclose()


async def test_requests_of_unknown_age_share_one_grace_period() -> None:
    async with dead() as requests:
        for _ in range(4):
            await requests.take()
            assert requests.end() == 0
            requests.now += GRACE / 4
        await requests.take()
        requests.now += 0.1
        assert requests.end() == 5


async def test_they_do_not_prolong_what_runs_for_a_silent_requestor() -> None:
    async with dead() as requests:
        await requests.take(delay=0.0)
        requests.now += DEAD - 0.1
        await requests.take()
        requests.now += 0.2
        assert requests.end() == 2


async def test_the_rest_of_a_queue_waits_no_longer_once_nobody_has_confirmed_its_beginning() -> None:
    async with dead() as requests:
        await requests.take()
        requests.now += GRACE + 0.1
        assert requests.end() == 1
        await requests.take()
        assert requests.end() == 1
        requests.pool.on_heartbeat(Heartbeat(INBOX, {}))
        await requests.take()
        assert requests.end() == 0


async def test_what_is_proven_to_be_old_gets_no_grace_period() -> None:
    async with dead() as requests:
        await requests.take(least_delay=DEAD + 0.1)
        assert requests.end() == 1
    async with dead() as requests:
        await requests.take(least_delay=GRACE / 2)
        assert requests.end() == 0


async def test_an_idle_link_begins_a_grace_period_with_its_next_request() -> None:
    async with dead() as requests:
        requests.pool.on_heartbeat(Heartbeat(INBOX, {}))
        requests.pool.to(INBOX)
        requests.now += DEAD - 0.1
        await requests.take()
        requests.now += GRACE - 0.1
        assert requests.end() == 0
