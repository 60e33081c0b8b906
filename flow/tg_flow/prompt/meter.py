"""Template operation -> meter: bounds the work of a template, however it is written.

Every operation that can repeat or enlarge anything charges the meter of the render that runs in this thread.
"""

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from time import thread_time
from typing import Any

NODE_COST = 16
"""Cost of one element of a list or table. A character costs 1 when text is made, 1/16 when it is only read."""
_LOOK_COST = 1024
"""Work after which the clock is looked at: a clock of CPU time costs a microsecond."""


class TooMuchWork(Exception):
    """The render has used up its budget."""


class Meter:
    """A budget.

    Args:
        work: characters that may be made.
        seconds: time that the render may take.
        time: the clock for it, in seconds: the CPU time of its thread, so that a loaded machine refuses no render.
    """

    def __init__(self, work: int, seconds: float, time: Callable[[], float] = thread_time) -> None:
        self._left = self._look = work
        self._time = time
        self._end = time() + seconds

    def charge(self, amount: int) -> None:
        """Take from the budget.

        Raises:
            TooMuchWork: the budget is used up.
        """
        self._left -= amount
        if self._left < self._look:
            self._look = max(0, self._left - _LOOK_COST)
            if self._left < 0 or self._time() > self._end:
                raise TooMuchWork


METER: ContextVar[Meter] = ContextVar("METER")
"""The meter of the running render."""


def charge(amount: int) -> None:
    """Charge the running render."""
    METER.get().charge(amount)


def charge_read(value: Any) -> Any:
    """Charge for reading all of a value, and return it. A part that occurs twice counts twice."""
    meter = METER.get()
    if isinstance(value, str):
        meter.charge(NODE_COST + len(value) // NODE_COST)
        return value
    pending = [value]
    while pending:
        match pending.pop():
            case str() as text:
                meter.charge(NODE_COST + len(text) // NODE_COST)
            case dict() as table:
                meter.charge(NODE_COST * (1 + len(table)))
                pending.extend(table)
                pending.extend(table.values())
            case list() | tuple() as elements:
                meter.charge(NODE_COST * (1 + len(elements)))
                pending.extend(elements)
            case _:
                meter.charge(NODE_COST)
    return value


def charge_made(value: Any) -> Any:
    """Charge for a new value, and return it."""
    charge(
        NODE_COST + (len(value) if isinstance(value, str) else NODE_COST * len(value) if isinstance(value, list) else 0)
    )
    return value


def each(values: Iterable[Any]) -> Iterator[Any]:
    """The elements, each charged as it is taken."""
    charge_one = METER.get().charge
    for value in values:
        charge_one(NODE_COST)
        yield value
