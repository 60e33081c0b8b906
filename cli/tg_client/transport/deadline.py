"""Stream -> its reader: the timeouts of an answer, and of silence within one."""

import asyncio
import math
from collections.abc import Awaitable
from typing import TypeVar

from tg_schema.errors import BadRequest, Timeout

T = TypeVar("T")

WAIT_LONGER = "a longer timeout= waits longer"
"""What a program can do about a Timeout. A command replaces it by the name of its option."""


class Deadline:
    """Starts when it is created, and restarts with each record. A flowing answer never times out.

    Args:
        timeout: seconds until the first record, and between two; a whole answer is one record.
        idle: seconds of silence that mean a dead connection, in a stream with keep-alives.

    Raises:
        BadRequest: one of them is zero, negative or NaN.
    """

    def __init__(self, timeout: float, idle: float = math.inf) -> None:
        if not (timeout > 0 and idle > 0):
            raise BadRequest(f"timeout= and idle= must be seconds above 0, not {timeout:g} and {idle:g}")
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._idle = idle
        self._end = self._loop.time() + timeout
        self._received = False

    @property
    def left(self) -> float:
        """Seconds left until the next record is due."""
        return self._end - self._loop.time()

    def hear(self) -> None:
        """Restart the timeout: a record has arrived, or its reader asks for the next one."""
        self._received = True
        self._end = self._loop.time() + self._timeout

    async def within(self, work: Awaitable[T]) -> T:
        """Wait for the next record, or a part of it.

        Raises:
            Timeout: the timeout has expired.
        """
        what = "nothing more of the answer came" if self._received else "no answer came"
        return await self._until(self._end, work, f"{what} within {self._timeout:g} s; {WAIT_LONGER}")

    async def soon(self, work: Awaitable[T]) -> T:
        """Wait as `within` does, but at most for the limit of silence.

        Raises:
            Timeout: either limit has expired.
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
