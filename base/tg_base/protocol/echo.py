"""Process -> bus -> the same process: checks that its own subscription is up to date before it declares a peer dead."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tg_base.bus import Bus, Delivery
from tg_base.runtime import new_id
from tg_schema import TgError

ECHO_PROPERTY = "echo"
"""Marks a message as an echo, on any topic. Readers other than its sender ignore it."""


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
        self._word = ""
        self._said_at = 0.0
        self._heard = False
        self._saying: asyncio.Task[None] | None = None

    def take(self, delivery: Delivery) -> bool:
        """Whether this message is an echo, which the topic's reader skips.

        Raises:
            BadRequest: the message's properties are unreadable.
        """
        word = delivery.properties.get(ECHO_PROPERTY)
        if word is None:
            return False
        # The late echo of an earlier doubt proves nothing about this one.
        self._heard |= word == self._word
        return True

    def is_settled(self, *, doubtful: bool) -> bool:
        """Whether a silence is real: the echo has come back, or the bus is down. Sends the echo if none is pending.

        Args:
            doubtful: whether any peer is silent. Call it again until this is False.
        """
        if not doubtful:
            self._word = ""
            return False
        if not self._word:
            self._word, self._heard, self._said_at = new_id(8), False, self._time()
            self._saying = asyncio.create_task(self._say(self._word))
        return self._heard or self._time() - self._said_at >= self._patience

    async def _say(self, word: str) -> None:
        with suppress(TgError):
            await self._bus.publish(self._topic, b"", {ECHO_PROPERTY: word})

    def close(self) -> None:
        """Send no more echoes."""
        if self._saying is not None:
            self._saying.cancel()
