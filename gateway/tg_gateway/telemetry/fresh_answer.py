"""Probes and pages that anybody may ask for often -> one question at a time, whose answer is reused for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FreshAnswer(Generic[T]):
    """The answer to one question.

    Args:
        ask: asks it.
        seconds: for how long its answer is good.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._answer: T

    async def get(self) -> T:
        """The answer. Callers that come while it is asked for get the same one."""
        time = asyncio.get_running_loop().time
        async with self._asking:
            if time() - self._asked_at > self._seconds:
                self._answer = await self._ask()
                # Read the clock again: the answer may have taken long.
                self._asked_at = time()
            return self._answer
