"""Process at rest -> free lists of C code: spare objects from before a burst, in place of those that it left there.

The event loop, the HTTP parser and asyncio keep some hundred freed objects of a kind for the next ones, and nothing
empties their lists. After a burst they are the last ones of streams, spread over all memory that these have used, and
keep it from the system.
"""

import asyncio
import ctypes
import sys
from collections.abc import Callable
from contextvars import Context
from typing import Any

FREE_LIST_OBJECTS = 250
"""Objects in a free list of uvloop and aiohttp, at the most."""
FREE_AWAITS = 255
"""The same for asyncio's iterators of futures."""
FAR_SECONDS = 3600.0
"""When a timer would fire that is cancelled at once."""
CLOSING_TURNS = 3
"""Turns of the event loop after which handles have run, and timers are closed."""

_Make = Callable[[], list[object]]
"""Fills a free list, once its result is dropped; first it empties it."""


class SpareObjects:
    """Made when the process has imported what it uses, before its first burst."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        makers = (self._awaits, *self._loop_makers(), *_message_makers())
        self._spares = {make: make() for make in makers}

    @property
    def addresses(self) -> set[int]:
        """Where they are."""
        return {id(spare) for spares in self._spares.values() for spare in spares}

    async def renew(self) -> None:
        """Fill the free lists with the spares, and so free what they have; then take the spares back."""
        for make, spares in self._spares.items():
            left = make()
            await self._settle()
            # In this order: a list that is full takes nothing more.
            spares.clear()
            left.clear()
            spares.extend(make())
            await self._settle()
        # It keeps the names of attributes that were looked up, among them strings of C code's own.
        ctypes.pythonapi.PyType_ClearCache()

    async def _settle(self) -> None:
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)

    def _awaits(self) -> list[object]:
        future = self._loop.create_future()
        return [future.__await__() for _ in range(FREE_AWAITS)]

    def _loop_makers(self) -> tuple[_Make, ...]:
        # asyncio's own loop has no such lists.
        return (self._handles, self._timers) if type(self._loop).__module__.startswith("uvloop") else ()

    def _handles(self) -> list[object]:
        # Without the caller's context, which they would keep.
        context = Context()
        return [self._loop.call_soon(_do_nothing, context=context) for _ in range(FREE_LIST_OBJECTS)]

    def _timers(self) -> list[object]:
        context = Context()
        later = self._loop.call_later
        timers: list[asyncio.TimerHandle] = [
            later(FAR_SECONDS, _do_nothing, context=context) for _ in range(FREE_LIST_OBJECTS)
        ]
        for timer in timers:
            timer.cancel()
        return [*timers]


def _message_makers() -> tuple[_Make, ...]:
    """Those of aiohttp's parser, if this process has it."""
    parser: Any = sys.modules.get("aiohttp.http_parser")
    if parser is None:
        return ()
    request, response = parser.RawRequestMessage, parser.RawResponseMessage
    none = (None, None, False, None, False, False)
    return (
        lambda: [request("", "", None, *none, None) for _ in range(FREE_LIST_OBJECTS)],
        lambda: [response(None, 0, "", *none) for _ in range(FREE_LIST_OBJECTS)],
    )


def _do_nothing() -> None:
    """Handles need something to call."""
