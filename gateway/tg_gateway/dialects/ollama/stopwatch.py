"""The times of an answer, in nanoseconds, as the gateway sees them: from the request to the first token, to the end."""

import time
from collections.abc import Callable


class Stopwatch:
    """Runs from when it is made.

    Args:
        clock: nanoseconds that never go back.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._start = clock()
        self._first: int | None = None

    def begin(self) -> None:
        """The first piece of the answer is here; later calls change nothing."""
        if self._first is None:
            self._first = self._clock()

    def read(self) -> tuple[int, int, int]:
        """Nanoseconds until now: in all, until the first piece of the answer, and since then.

        Nobody sees the first token of a whole answer: all of its time counts as that since the first piece.
        """
        now = self._clock()
        first = self._start if self._first is None else self._first
        return now - self._start, first - self._start, now - first
