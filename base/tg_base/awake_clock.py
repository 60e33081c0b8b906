"""The clock that silence is measured by."""

import asyncio


class AwakeClock:
    """Monotonic seconds in which this process was awake.

    A stalled event loop or a suspended machine hears nobody, and would take everybody for dead when it wakes; what it
    overslept does not count.
    """

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._overslept = 0.0

    def __call__(self) -> float:
        """Now, in seconds since some fixed time."""
        return self._time() - self._overslept

    async def sleep(self, seconds: float) -> None:
        """Sleep, and leave out of the count by how much it became longer."""
        due = self._time() + seconds
        await asyncio.sleep(seconds)
        self._overslept += max(self._time() - due, 0.0)
