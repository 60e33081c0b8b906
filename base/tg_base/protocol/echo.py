"""Process -> bus -> the same process: whether what it hears is up to date, before it takes anybody for dead."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tg_base.bus import Bus, Delivery
from tg_base.runtime import new_id
from tg_schema import TgError

ECHO_PROPERTY = "echo"
"""A message with this property is an echo, on any topic; the readers for whom it is not ignore it."""


class Echo:
    """A word that a process says to itself on a topic that it reads: it is heard after all that was said before.

    Args:
        bus: what carries it.
        topic: a topic that this process reads.
        time: the clock that silence is measured by, in seconds.
        patience: seconds after which a bus that has not brought the word is away, and the silence is real.
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
        """Whether this message is an echo, and so nothing for the topic's reader.

        Raises:
            BadRequest: the message's properties are unreadable.
        """
        word = delivery.properties.get(ECHO_PROPERTY)
        self._heard |= word is not None and word == self._word
        return word is not None

    def is_settled(self, *, doubtful: bool) -> bool:
        """Whether a silence is real: the word has come back, or the bus is away. Says the word where it must be said.

        Args:
            doubtful: whether anybody is silent; call it again until this is False.
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
        """Say nothing more."""
        if self._saying is not None:
            self._saying.cancel()
