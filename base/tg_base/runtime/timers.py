"""The timers of streams, which have three each: at the loop's resolution, and outside of any task's context."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Final

_LATE_SECONDS: Final = 0.001
"""uvloop's timers may fire half of it too early: a callback that comes too early would re-arm itself over and over."""


def call_late(due: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    """Call a function when a time of the running loop is certainly over.

    The caller's context is not kept alive meanwhile.
    """
    return asyncio.get_running_loop().call_at(due + _LATE_SECONDS, call, context=Context())
