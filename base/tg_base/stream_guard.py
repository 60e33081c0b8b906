"""Provider stream -> guarded stream: three clocks on content, and a terminal marker or an error.

Every provider SDK ends silently when its stream is cut cleanly, and none of their timeouts survives keep-alives
(reference: libraries 7 and 8). This wrapper is where both become errors.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Self

import msgspec

from tg_base.llm_chunk import LlmChunk
from tg_schema.errors import IncompleteStream, Timeout


class Clocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that a provider may take: to its first content, between contents, and for the whole stream."""

    first_token: float = 60.0
    idle: float = 30.0
    total: float = 1800.0


async def guarded(source: AsyncGenerator[LlmChunk, None], clocks: Clocks) -> AsyncGenerator[LlmChunk, None]:
    """Yield what `source` yields, and close it whatever happens.

    A clock runs only while we wait for the provider; a slow reader of ours does not count against it. Chunks without
    text, reasoning or tokens are passed on but reset no clock.

    Raises:
        Timeout: a clock ran out; the message names it.
        IncompleteStream: the source ended and no chunk had a `finish_reason`.
    """
    finished = False
    watch = _Watch(clocks)
    async with aclosing(source):
        while True:
            with watch:
                chunk = await anext(source, None)
            if chunk is None:
                break
            finished = finished or chunk.finish_reason is not None
            watch.saw(content=bool(chunk.text or chunk.reasoning or chunk.tokens))
            yield chunk
    if not finished:
        raise IncompleteStream("the provider's stream ended without its terminal marker; ask again")


class _Watch:
    """Cancels the waiting task when a clock runs out; one timer for the whole stream, moved only when it fires."""

    def __init__(self, clocks: Clocks) -> None:
        self._loop = asyncio.get_running_loop()
        self._clocks = clocks
        start = self._loop.time()
        self._end = start + clocks.total
        self._due = min(start + clocks.first_token, self._end)
        self._limit = f"no first token within {clocks.first_token:g} s"
        self._restart = False
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fired = False

    def saw(self, *, content: bool) -> None:
        """A chunk came; content starts the idle clock anew, from the next wait on."""
        self._restart = self._restart or content

    def __enter__(self) -> Self:
        if self._restart:
            self._restart = False
            self._due = min(self._loop.time() + self._clocks.idle, self._end)
            self._limit = f"no content for {self._clocks.idle:g} s"
        self._task = asyncio.current_task()
        if self._timer is None:
            self._timer = self._loop.call_at(self._due, self._check)
        return self

    def _check(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._check)
        else:
            self._fired = True
            self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        task, self._task = self._task, None
        if kind is not None and self._timer is not None:
            self._timer.cancel()
        if self._fired and task is not None and task.uncancel() == 0 and kind is asyncio.CancelledError:
            late = self._due >= self._end
            limit = f"not finished within {self._clocks.total:g} s" if late else self._limit
            raise Timeout(f"the provider was too slow: {limit}") from error
