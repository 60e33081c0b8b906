"""How long a whole answer may take, and how long silence within it may last."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from tg_schema.errors import Timeout

T = TypeVar("T")


class Clock:
    """Starts when it is made.

    Args:
        timeout: seconds until the whole answer must have come.
        idle: seconds of silence in a stream, where the gateway sends keep-alives, that mean a dead connection.
    """

    def __init__(self, timeout: float, idle: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._idle = idle
        self._end = self._loop.time() + timeout

    async def within(self, work: Awaitable[T]) -> T:
        """Wait until the deadline.

        Raises:
            Timeout: it has passed.
        """
        return await self._until(self._end, work, f"no complete answer within {self._timeout:g} s")

    async def soon(self, work: Awaitable[T]) -> T:
        """Wait until the deadline, and not through a longer silence.

        Raises:
            Timeout: either has passed.
        """
        silent = self._loop.time() + self._idle
        if silent < self._end:
            return await self._until(silent, work, f"the gateway was silent for {self._idle:g} s")
        return await self.within(work)

    async def _until(self, when: float, work: Awaitable[T], sentence: str) -> T:
        limit = asyncio.timeout_at(when)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise Timeout(sentence) from None
            raise
