"""The resolution of the loop's timers, which each stream has three of."""

from typing import Final

TIMER_SECONDS: Final = 0.001
"""uvloop's timers may fire half of it too early, so streams set theirs this much later: a callback that comes too early
would re-arm itself over and over until its time."""
