"""Long work in steps -> its result: at once, or with a turn of the event loop for others after each step."""

import types
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that yields wherever it can pause."""


def finish(steps: Steps[T]) -> T:
    """The result, without a pause. Raises the exceptions of the work."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


@types.coroutine
def take_turns(steps: Steps[T]) -> Steps[T]:
    """The same result when awaited, with a pause after each step."""
    # A bare `yield` is what `asyncio.sleep(0)` awaits.
    return (yield from steps)
