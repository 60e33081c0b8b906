"""The clock that silence is measured by."""

import asyncio
import math


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
