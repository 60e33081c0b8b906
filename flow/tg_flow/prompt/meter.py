"""Template operation -> meter: bounds the work of a rendering, whatever its template does.

Every operation that can repeat or enlarge a value charges the meter of the rendering that runs in its thread.
"""

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from time import thread_time
from typing import Any

NODE_COST = 16
"""Cost of one element of a list or table. A character costs 1 when it is written, 1/16 when it is only read."""
_LOOK_COST = 1024
"""Work between two looks at the clock: reading the CPU time costs a microsecond."""


class TooMuchWork(Exception):
    """The rendering has used up its budget."""


class Meter:
    """The budget of one rendering.

    Args:
        work: characters that may be written.
        seconds: time that the rendering may take.
        time: the clock for `seconds`: the thread's CPU time, so that a loaded machine does not fail a rendering.
    """

    def __init__(self, work: int, seconds: float, time: Callable[[], float] = thread_time) -> None:
        self._left = self._look = work
        self._time = time
        self._end = time() + seconds

    def charge(self, amount: int) -> None:
        """Take `amount` from the budget.

        Raises:
            TooMuchWork: the budget is used up.
        """
        self._left -= amount
        if self._left < self._look:
            self._look = max(0, self._left - _LOOK_COST)
            if self._left < 0 or self._time() > self._end:
                raise TooMuchWork


METER: ContextVar[Meter] = ContextVar("METER")
"""The meter of the rendering in this thread."""


def charge(amount: int) -> None:
    """Charge the rendering in this thread."""
    METER.get().charge(amount)


def charge_read(value: Any) -> Any:
    """Charge for reading a whole value, and return it. A part that occurs twice is charged twice."""
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
    """The elements; each is charged when it is taken."""
    charge_one = METER.get().charge
    for value in values:
        charge_one(NODE_COST)
        yield value
