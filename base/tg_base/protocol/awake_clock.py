"""The clock that silence is measured by."""

import asyncio
import math


class AwakeClock:
    """Monotonic seconds in which this process was awake, for one sleeper.

    A stalled event loop or a suspended machine hears nobody, and would take everybody for dead when it wakes; what it
    overslept does not count.
    """

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._overslept = 0.0
        self._due = math.inf

    def __call__(self) -> float:
        """Now, in seconds since some fixed time.

        What comes between an oversleeping and the sleeper's waking has the time at which he should have woken.
        """
        return min(self._time(), self._due) - self._overslept

    async def sleep(self, seconds: float) -> None:
        """Sleep, and leave out of the count by how much it became longer."""
        self._due = self._time() + seconds
        await asyncio.sleep(seconds)
        self._overslept += max(self._time() - self._due, 0.0)
        self._due = math.inf
