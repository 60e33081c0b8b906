"""Response stream -> its reader: the timeouts of a stream."""

import asyncio
from collections.abc import Callable

from tg_schema.errors import Timeout


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

    def __init__(self, timeout: float, total: float | None, expire: Callable[[Timeout], None]) -> None:
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._timeout = timeout
        self._total = total
        self._end = None if total is None else now + total
        self._began = now
        self.heard_at: float | None = None
        self._expire = expire
        self._timer = self._loop.call_at(self._due, self._check)

    @property
    def remaining(self) -> float:
        """Seconds until the timeout, if nothing more comes."""
        return self._due - self._loop.time()

    def close(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    @property
    def _due(self) -> float:
        silent_at = (self._began if self.heard_at is None else self.heard_at) + self._timeout
        return silent_at if self._end is None else min(silent_at, self._end)

    def _check(self) -> None:
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._check)
        else:
            self._expire(Timeout(self._sentence()))

    def _sentence(self) -> str:
        if self._total is not None and self._due == self._end:
            return f"no complete answer within {self._total:g} s"
        if self.heard_at is not None:
            return f"nothing more of the answer came within {self._timeout:g} s"
        return f"no answer came within {self._timeout:g} s"
