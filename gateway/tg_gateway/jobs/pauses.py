"""Lost attempt -> when the next one may begin, so that immediate failures do not use up all attempts in seconds.

A library for retries sleeps in the process that failed. Here another gateway may make the next attempt, so the time is
written into the answer's log, where each gateway finds the rest of the pause.
"""

import random
import time
from collections.abc import Callable
from typing import Final

LONGEST_SECONDS: Final = 60.0
"""The longest pause: a server that restarts is back by then, and a wrong clock costs no more."""


class AttemptPauses:
    """Pauses that double with each attempt. The second half of each is random, so a server that is back is not overrun.

    The first half is fixed, since a retry after nearly no pause would waste an attempt, which may cost money.

    Args:
        clock: seconds since 1970, the same for all gateways.
        draw: a random number from 0 to 1.
        first: seconds of the first one, at most.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
        *,
        first: float = 4.0,
    ) -> None:
        self._clock = clock
        self._draw = draw
        self._first = first

    def choose(self, attempts: int, until: float) -> float:
        """When the next attempt may begin, by the wall clock: before `until`, unless that has passed.

        Args:
            attempts: the number of attempts so far, at least one.
            until: the deadline for the next attempt.
        """
        now = self._clock()
        longest = min(self._first * 2.0 ** (attempts - 1), LONGEST_SECONDS)
        return now + min(longest * (1 + self._draw()) / 2, max(until - now, 0.0) / 2)

    def measure(self, resumes: float) -> float:
        """Seconds that are left until then."""
        # `>` and not `max`: "nan" reads as a number too.
        return min(left, LONGEST_SECONDS) if (left := resumes - self._clock()) > 0 else 0.0
