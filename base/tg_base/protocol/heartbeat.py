"""Heartbeats of both ends: intervals, when silence counts as death, and how a process rules itself out first.

An echo shows that its own subscription is up to date. Silence is measured by a clock that stands still while the
process is not awake (`AwakeClock`).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from tg_base.bus import Bus, Delivery
from tg_base.telemetry import new_id
from tg_schema import TgError

ECHO_PROPERTY = "echo"
"""Marks a message as an echo, on any topic. Readers other than its sender ignore it."""


@dataclass(frozen=True)
class HeartbeatTiming:
    """All in seconds. Three missed heartbeats mean death; the extra half interval covers the transport.

    Attributes:
        interval: between two heartbeats.
        give_up: how long the bus may refuse a subscription while it answers pings; after that the process ends.
    """

    interval: float = 1.0
    give_up: float = 60.0

    @cached_property
    def dead_after(self) -> float:
        """A peer that is silent for longer is considered dead."""
        return 3.5 * self.interval

    @cached_property
    def overdue_after(self) -> float:
        """After this silence a heartbeat is overdue, and the last one no longer shows the sender's state."""
        return 1.5 * self.interval

    @cached_property
    def doubt_after(self) -> float:
        """After this silence a process checks whether its own subscription is the cause (`Echo`)."""
        return 2.5 * self.interval

    @cached_property
    def tick(self) -> float:
        """Interval of the checks for silence; a death is detected at most this much late."""
        return self.interval / 4


class Echo:
    """A message from a process to itself on a topic that it reads. It arrives after everything published before it.

    Args:
        bus: carries the echo.
        topic: a topic that this process reads.
        time: the clock that silence is measured by, in seconds.
        patience: seconds to wait for the echo. After that the bus counts as down, and the silence as real.
    """

    def __init__(self, bus: Bus, topic: str, time: Callable[[], float], patience: float) -> None:
        self._bus = bus
        self._topic = topic
        self._time = time
        self._patience = patience
        self._echo = ""
        self._published_at = 0.0
        self._returned = False
        self._publishing: asyncio.Task[None] | None = None

    def take(self, delivery: Delivery) -> bool:
        """Whether this message is an echo, which the topic's reader skips.

        Raises:
            BadRequest: the message's properties are unreadable.
        """
        echo = delivery.properties.get(ECHO_PROPERTY)
        if echo is None:
            return False
        # The late echo of an earlier doubt proves nothing about this one.
        self._returned |= echo == self._echo
        return True

    def is_settled(self, *, doubtful: bool) -> bool:
        """Whether a silence is real: the echo has come back, or the bus is down. Sends the echo if none is pending.

        Args:
            doubtful: whether any peer is silent. Call it again until this is False.
        """
        if not doubtful:
            self._echo = ""
            return False
        if not self._echo:
            self._echo, self._returned, self._published_at = new_id(8), False, self._time()
            self._publishing = asyncio.create_task(self._publish_echo(self._echo))
        return self._returned or self._time() - self._published_at >= self._patience

    async def _publish_echo(self, echo: str) -> None:
        with suppress(TgError):
            await self._bus.publish(self._topic, b"", {ECHO_PROPERTY: echo})

    def close(self) -> None:
        """Send no more echoes."""
        if self._publishing is not None:
            self._publishing.cancel()
