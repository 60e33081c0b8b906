"""What an answer has taken, in nanoseconds, as the gateway sees it: from the request to the first token, to the end."""

import time
from collections.abc import Callable

import msgspec


class Durations(msgspec.Struct, frozen=True):
    """Nanoseconds.

    Attributes:
        load_duration: always 0; the time to load a model on demand is a part of `prompt_eval_duration`.
        prompt_eval_duration: until the first piece of the answer; 0 for a whole answer, whose first token nobody sees.
        eval_duration: the rest.
    """

    total_duration: int
    load_duration: int
    prompt_eval_duration: int
    eval_duration: int


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

    def read(self) -> Durations:
        """What it has taken until now."""
        now = self._clock()
        first = self._start if self._first is None else self._first
        return Durations(now - self._start, 0, first - self._start, now - first)
