"""Process at rest -> free lists of C code: spare objects made before a burst replace those that the burst left.

The event loop, the HTTP parser and asyncio keep some hundred freed objects of a kind for the next ones, and nothing
empties these free lists. After a burst they hold the last objects of its streams, spread over all memory that the
streams have used, which therefore cannot go back to the system.
"""

import asyncio
import ctypes
import sys
from collections.abc import Callable
from contextvars import Context
from typing import Any

FREE_LIST_OBJECTS = 250
"""Maximum length of a free list of uvloop or aiohttp."""
FREE_AWAITS = 255
"""Maximum length of asyncio's free list of future iterators."""
FAR_SECONDS = 3600.0
"""Delay of the timers that are made here and cancelled at once."""
CLOSING_TURNS = 3
"""Turns of the event loop after which handles have run and timers are closed."""

_Make = Callable[[], list[object]]
"""Empties a free list into its result; dropping the result fills the list again."""


class SpareObjects:
    """Spare objects of each kind. Make it when the process has imported what it uses, before its first burst."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        makers = (self._awaits, *self._loop_makers(), *_message_makers())
        self._spares = {make: make() for make in makers}

    @property
    def addresses(self) -> set[int]:
        """Their addresses in memory."""
        return {id(spare) for spares in self._spares.values() for spare in spares}

    async def renew(self) -> None:
        """Put the spares into the free lists, which frees what these had; then take the spares out again."""
        for make, spares in self._spares.items():
            left = make()
            await self._settle()
            # In this order: a list that is full takes nothing more.
            spares.clear()
            left.clear()
            spares.extend(make())
            await self._settle()
        # This cache keeps names of attributes, among them strings that C code made during the burst.
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
        # An empty context: the handles would keep the caller's.
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
    """Makers of the messages of aiohttp's parser, if this process has imported it."""
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
