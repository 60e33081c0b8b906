"""Pump -> the client that asked: parts of a kept answer before they are in its log, while it keeps up."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Self

from tg_gateway.dialects import BEGUN_LINES, KeptAnswer

MAX_LIVE_BYTES: Final = 64 * 1024
"""Bytes of parts that the client has not taken yet. A client further behind reads on in the log."""


class LiveParts:
    """Iterated once, in the process that makes the answer: its parts from the first, without a gap.

    The iteration ends with the answer, or earlier if the client falls behind. Nothing waits for it.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._over = False
        self._wake = asyncio.Event()

    def put(self, part: bytes) -> None:
        """Add a part. If it does not fit, the iteration ends after the parts that are held."""
        if self._over:
            return
        if self._size + len(part) > MAX_LIVE_BYTES:
            self.close()
            return
        self._parts.append(part)
        self._size += len(part)
        self._wake.set()

    def close(self) -> None:
        """No more parts come."""
        self._over = True
        self._wake.set()

    async def lead(self, steps: AsyncGenerator[bytes | KeptAnswer, None]) -> AsyncGenerator[bytes | KeptAnswer, None]:
        """Yields the parts, then the rest of the answer from its log, without repeating parts."""
        given = 0
        async for part in self:
            given += len(part)
            yield part
        async with aclosing(steps):
            async for step in steps:
                if isinstance(step, KeptAnswer) or not step:
                    yield step
                elif step != BEGUN_LINES:
                    if len(step) > given:
                        yield step[given:]
                    given = max(0, given - len(step))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._parts:
            if self._over:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        joined, self._parts, self._size = b"".join(self._parts), [], 0
        return joined
