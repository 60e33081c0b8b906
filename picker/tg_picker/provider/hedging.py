"""A slow attempt -> a second one at the same time: the first token wins, and the other attempt is cancelled."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from typing import Final

from tg_base.llm import LlmChunk, PassOn
from tg_base.runtime import running
from tg_schema import TgError
from tg_schema.errors import IncompleteStream

QUANTILE = 0.95
"""Quantile of the times to a first token. A request that takes longer gets a second attempt."""
MIN_TIMES = 20
"""Measured times that are needed before a request can count as slow."""
MAX_TIMES = 200
MAX_ROUTES = 1_000
"""Most routes whose times are remembered; if there are no routes, clients choose the names."""
MAX_CREDIT = 10.0
"""Most second attempts in a burst, after many requests without one."""
MAX_WAITING_CHUNKS = 16
"""Most chunks of the second attempt that wait to be read."""

NOT_BEGUN: Final = "the server's answer ended before it began; ask again"

_UNHEDGED: Final[AbstractAsyncContextManager[None]] = nullcontext()

Chunks = AsyncGenerator[LlmChunk, PassOn | None]
Begun = tuple[list[LlmChunk], Chunks]
"""The first chunks of an answer, up to the first that a client sees, and the other chunks."""


class Hedging:
    """Decides when a request gets a second attempt: after its route's QUANTILE of times to a first token, on a budget.

    Args:
        share: the share of requests that may get one.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._credit = 0.0
        self._times: dict[str, deque[float]] = {}

    def learn(self, route: str, seconds: float) -> None:
        """Note a request and the time to its first token; if its attempt lost, the time until that."""
        self._credit = min(self._credit + self._share, MAX_CREDIT)
        if route not in self._times and len(self._times) >= MAX_ROUTES:
            del self._times[next(iter(self._times))]
        self._times.setdefault(route, deque(maxlen=MAX_TIMES)).append(seconds)

    def find_delay(self, route: str) -> float | None:
        """Seconds after which a request of this route is slow; None = not known, or the budget is used up."""
        times = self._times.get(route, ())
        if len(times) < MIN_TIMES or self._credit < 1:
            return None
        return sorted(times)[int(QUANTILE * len(times))]

    def spend(self) -> bool:
        """Take one second attempt from the budget. Returns False if the budget is used up."""
        if self._credit < 1:
            return False
        self._credit -= 1
        return True


class SecondAttempt:
    """A second attempt. It has a task of its own, because two attempts are read at the same time. See `hedged`.

    Args:
        start: starts the attempt; it returns None if there is no other server, or no budget.

    Attributes:
        tell_begin: called when the answer begins.
        stop: cancels the attempt; has no effect after it has ended.
    """

    def __init__(self, start: Callable[[], Chunks | None]) -> None:
        self._start = start
        self._is_asked = False
        self._held: asyncio.Future[list[LlmChunk] | None] = asyncio.get_running_loop().create_future()
        self._chunks: asyncio.Queue[LlmChunk | TgError | None] = asyncio.Queue(MAX_WAITING_CHUNKS)
        self.tell_begin: Callable[[], object] = lambda: None
        self.stop: Callable[[], object] = lambda: None

    async def run(self, delay: float) -> None:
        """Wait, then start the attempt. This never fails: the reader gets the error."""
        await asyncio.sleep(delay)
        chunks = self._start()
        if chunks is None:
            return
        self._is_asked = True
        try:
            async with aclosing(chunks):
                self._held.set_result(await begin(chunks))
                self.tell_begin()
                async for chunk in chunks:
                    await self._chunks.put(chunk)
            await self._chunks.put(None)
        except TgError as error:
            if self._held.done():
                await self._chunks.put(error)
        finally:
            if not self._held.done():
                self._held.set_result(None)

    async def take_over(self) -> Begun | None:
        """The answer of this attempt, once it has begun; None = it was not started, or failed before it began."""
        if not self._is_asked:
            return None
        # Do not `await` the future: a cancelled task would cancel it too, while the attempt still sets it.
        await asyncio.wait([self._held])
        held = self._held.result()
        return None if held is None else (held, self._read())

    async def _read(self) -> Chunks:
        while (chunk := await self._chunks.get()) is not None:
            if isinstance(chunk, TgError):
                raise chunk
            yield chunk


def hedged(
    delay: float | None, start: Callable[[], Chunks | None]
) -> AbstractAsyncContextManager[SecondAttempt | None]:
    """A second attempt that starts after `delay` seconds, unless the block is left before; None = no second attempt."""
    # Nearly all requests need none, so share one empty context.
    return _UNHEDGED if delay is None else _hedge(delay, start)


@asynccontextmanager
async def _hedge(delay: float, start: Callable[[], Chunks | None]) -> AsyncIterator[SecondAttempt]:
    second = SecondAttempt(start)
    async with running(second.run(delay)) as task:
        second.stop = task.cancel
        yield second


async def begin_either(first: Chunks, second: SecondAttempt | None) -> Begun:
    """The answer that begins first; the other attempt is cancelled.

    This task reads the first attempt, so chunks pass through a queue only if the second attempt wins.

    Raises:
        TgError: the first attempt failed. The second one goes on if it has started.
    """
    if second is None:
        return await begin(first), first
    try:
        async with asyncio.timeout(None) as cut:
            now = asyncio.get_running_loop().time
            second.tell_begin = lambda: cut.reschedule(now())
            held = await begin(first)
    except TimeoutError:
        if cut.expired() and (begun := await second.take_over()) is not None:
            # The timeout has ended the first attempt: its connection is closed, and its placement released.
            return begun
        raise
    else:
        second.stop()
        return held, first
    finally:
        second.tell_begin = lambda: None


async def begin(chunks: Chunks) -> list[LlmChunk]:
    """The chunks up to the first one that a client sees.

    Raises:
        IncompleteStream: there is no such chunk.
    """
    held: list[LlmChunk] = []
    async for chunk in chunks:
        held.append(chunk)
        if chunk.has_content or chunk.finish_reason is not None:
            return held
    raise IncompleteStream(NOT_BEGUN)
