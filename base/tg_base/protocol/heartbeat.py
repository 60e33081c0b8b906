"""Heartbeats of both ends: their intervals, what silence is measured by, and when it counts as death; that of a stream.

A process checks itself before it declares a peer dead: its clock stands still while it is not awake, and an echo shows
that its own subscription is up to date.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tg_base.bus import Bus, Delivery
from tg_base.runtime import Alarm, new_id
from tg_schema import TgError
from tg_schema.errors import Timeout

ECHO_PROPERTY = "echo"
"""Marks a message as an echo, on any topic. Readers other than its sender ignore it."""


@dataclass(frozen=True, slots=True)
class HeartbeatTiming:
    """All in seconds. Three missed heartbeats mean death; the extra half interval covers the transport.

    Attributes:
        interval: between two heartbeats.
        give_up: how long the bus may refuse a subscription while it answers pings; after that the process ends.
    """

    interval: float = 1.0
    give_up: float = 60.0

    @property
    def dead_after(self) -> float:
        """A peer that is silent for longer is considered dead."""
        return 3.5 * self.interval

    @property
    def overdue_after(self) -> float:
        """After this silence a heartbeat is overdue, and the last one no longer tells what its sender does."""
        return 1.5 * self.interval

    @property
    def doubt_after(self) -> float:
        """After this silence a process checks whether its own subscription is the cause (`Echo`)."""
        return 2.5 * self.interval

    @property
    def tick(self) -> float:
        """Interval of the checks for silence; a death is detected at most this much late."""
        return self.interval / 4


class AwakeClock:
    """Monotonic seconds in which this process was awake. One task sleeps on it.

    A stalled event loop or a suspended machine receives nothing, and would declare every peer dead when it resumes.
    The time by which a sleep was late does not count.
    """

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._overslept = 0.0
        self._due = math.inf

    def __call__(self) -> float:
        """Now, in seconds since some fixed time. It stands still while the sleep is late."""
        return min(self._time(), self._due) - self._overslept

    async def sleep(self, seconds: float) -> None:
        """Sleep; the time by which it takes longer is not counted."""
        self._due = self._time() + seconds
        await asyncio.sleep(seconds)
        self._overslept += max(self._time() - self._due, 0.0)
        self._due = math.inf


class StreamClock:
    """Starts when it is created, and restarts with each sign of progress. A flowing answer never times out.

    One timer for the whole stream: it is moved when it fires too early, and not for each record.

    Args:
        timeout: seconds until the first sign of progress, and between two of them.
        total: seconds for the whole answer; None = no limit at this end.
        expire: called once, when the time is over.

    Attributes:
        heard_at: loop time of the latest sign of progress, set by the stream; None = none has come.
    """

    __slots__ = ("_began", "_end", "_expire", "_loop", "_timeout", "_timer", "_total", "heard_at")

    def __init__(self, timeout: float, total: float | None, expire: Callable[[Timeout], None]) -> None:
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._timeout = timeout
        self._total = total
        self._end = None if total is None else now + total
        self._began = now
        self.heard_at: float | None = None
        self._expire = expire
        self._timer = Alarm(self._due, self._check)

    @property
    def remaining(self) -> float:
        """Seconds until the timeout, if nothing more comes."""
        return self._due - self._loop.time()

    def begin_anew(self) -> None:
        """The first sign of progress is awaited from now on."""
        self._began = self._loop.time()

    def close(self) -> None:
        """Stop the timer, for good."""
        self._timer.cancel()
        # Of the stream, which has this clock: as a circle both, and the request, would wait for the garbage collector.
        self._expire = _ignore_expiry

    @property
    def _due(self) -> float:
        silent_at = (self._began if self.heard_at is None else self.heard_at) + self._timeout
        return silent_at if self._end is None else min(silent_at, self._end)

    def _check(self) -> None:
        if self._loop.time() < self._due:
            self._timer = Alarm(self._due, self._check)
        else:
            self._expire(Timeout(self._sentence()))

    def _sentence(self) -> str:
        if self._total is not None and self._due == self._end:
            return f"no complete answer within {self._total:g} s"
        if self.heard_at is not None:
            return f"nothing more of the answer came within {self._timeout:g} s"
        return f"no answer came within {self._timeout:g} s"


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
        self._heard = False
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
        self._heard |= echo == self._echo
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
            self._echo, self._heard, self._published_at = new_id(8), False, self._time()
            self._publishing = asyncio.create_task(self._publish_echo(self._echo))
        return self._heard or self._time() - self._published_at >= self._patience

    async def _publish_echo(self, echo: str) -> None:
        with suppress(TgError):
            await self._bus.publish(self._topic, b"", {ECHO_PROPERTY: echo})

    def close(self) -> None:
        """Send no more echoes."""
        if self._publishing is not None:
            self._publishing.cancel()


def _ignore_expiry(_: Timeout) -> None:
    """Nobody waits."""
