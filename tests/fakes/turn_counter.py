"""Counts what the code of this thread does between two turns of its event loop, in calls of functions: no clock."""

import asyncio
import sys
from types import FrameType
from typing import Any, Self


class TurnCounter:
    """Entered around what is watched.

    Attributes:
        longest: the most calls between two turns so far, those of C functions included.
    """

    def __init__(self) -> None:
        self.longest = 0
        self._calls = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._take_turns())
        await asyncio.sleep(0)
        sys.setprofile(self._count)
        return self

    async def __aexit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._end_turn()
        self._task.cancel()

    async def _take_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._end_turn()

    def _end_turn(self) -> None:
        self.longest, self._calls = max(self.longest, self._calls), 0

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in {"call", "c_call"}:
            self._calls += 1
