"""Functions at the edge of the world that agents call as tools."""

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import structlog

seen: list[str] = []
"""What the tools say of themselves to whoever tests them."""


def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


async def shout(text: str) -> str:
    """Says it louder."""
    return text.upper()


async def count(to: int) -> AsyncGenerator[str, None]:
    """Counts."""
    for number in range(to):
        yield f"{number} "


async def crash() -> str:
    """Never works."""
    raise KeyError("secret-of-the-tool")


async def hang() -> str:
    """Never comes back."""
    seen.append("started")
    try:
        await asyncio.Event().wait()
    finally:
        seen.append("stopped")
    return ""


meeting = asyncio.Barrier(2)


async def meet() -> str:
    """Returns when two are in it."""
    await meeting.wait()
    return "met"


released = threading.Event()


def block() -> str:
    """Holds its thread."""
    released.wait(10)
    return "late"


def made(at: list[int], when: str | None = None) -> dict[str, object]:
    """Gives back what it was given."""
    return {"at": at, "when": when}


def loose(**more: object) -> None:
    """Has parameters without names."""


def echo(text: str = "") -> str:
    """Says the same."""
    return text


async def cancels() -> None:
    """Raises what asyncio raises in a task that is cancelled."""
    raise asyncio.CancelledError


async def exits() -> None:
    """Means to end the process."""
    sys.exit(3)


def exits_in_its_thread() -> None:
    """Means to end the process."""
    sys.exit(3)


def stops() -> None:
    """Raises what no future takes."""
    raise StopIteration


async def long() -> AsyncGenerator[str, None]:
    """Never ends by itself."""
    while True:
        yield "x" * 999


def written(file: str, text: str) -> None:
    """A few bytes."""
    Path(file).write_text(text)


async def note(file: str) -> None:
    """Never comes back, and writes into a file what becomes of it."""
    written(file, "started")
    try:
        await asyncio.Event().wait()
    finally:
        written(file, "stopped")


def logs() -> str:
    """Writes a line into the log, from the thread that it runs on."""
    structlog.get_logger().info("tool.said")
    return "logged"
