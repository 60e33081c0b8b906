"""Long work in steps -> its result: at once, or with a turn of the event loop for others after each step."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that yields wherever it can pause."""


def finish(steps: Steps[T]) -> T:
    """The result, without a pause. Raises what the work raises."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


async def take_turns(steps: Steps[T]) -> T:
    """The same, with a pause after each step."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)
