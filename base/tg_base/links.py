"""All links of one processor, one for each requestor that it answers."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from tg_base.background import running
from tg_base.bus.api import Bus
from tg_base.frames import Beat, LinkState, Resend, StreamKey
from tg_base.link import Link

IDLE = 30.0
"""Seconds after which a link that nobody uses is closed."""


class Links:
    """Opens a link with the first request of a requestor, closes it when that is idle or dead.

    Args:
        bus: what carries everything.
        processor: whose links these are.
        time: the clock that silence is measured by, in seconds.
    """

    def __init__(self, bus: Bus, processor: str, time: Callable[[], float]) -> None:
        self._bus = bus
        self._processor = processor
        self._links: dict[str, tuple[Link, AsyncExitStack]] = {}
        self._time = time

    async def to(self, inbox: str) -> Link:
        """The link to an inbox."""
        if inbox not in self._links:
            link, stack = Link(self._bus, inbox, self._processor, self._time), AsyncExitStack()
            self._links[inbox] = link, stack
            await stack.enter_async_context(running(link.run()))
        return self._links[inbox][0]

    @property
    def states(self) -> dict[str, LinkState]:
        """By inbox, how far each link has sent."""
        return {inbox: link.state for inbox, (link, _) in self._links.items()}

    def on_beat(self, beat: Beat) -> None:
        """A requestor lives and says what it has."""
        if beat.inbox in self._links:
            link = self._links[beat.inbox][0]
            link.heard_at = self._time()
            if link.name in beat.acknowledged:
                link.acknowledge(beat.acknowledged[link.name])

    def on_resend(self, resend: Resend) -> None:
        """A requestor misses something."""
        if resend.inbox in self._links and self._links[resend.inbox][0].name == resend.link:
            link = self._links[resend.inbox][0]
            link.heard_at = self._time()
            link.resend(resend.have)

    def silent(self, seconds: float) -> set[StreamKey]:
        """The streams of requestors that have not been heard for so long."""
        limit = self._time() - seconds
        return {key for link, _ in self._links.values() if link.heard_at < limit for key in link.streams}

    async def sweep(self, seconds: float) -> None:
        """Close the links of requestors that have been silent for so long, and those that are idle."""
        now = self._time()
        for inbox, (link, stack) in list(self._links.items()):
            dead = link.heard_at < now - seconds and not link.streams
            if dead or (link.idle and link.used_at < now - IDLE):
                del self._links[inbox]
                await stack.aclose()

    async def aclose(self, seconds: float) -> None:
        """Give every link so long to send what waits, then close it."""
        flushes = [asyncio.create_task(link.flushed()) for link, _ in self._links.values()]
        if flushes:
            _, late = await asyncio.wait(flushes, timeout=seconds)
            for flush in late:
                flush.cancel()
        while self._links:
            _, (_, stack) = self._links.popitem()
            await stack.aclose()
