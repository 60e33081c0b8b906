"""Functions at the edge of the world that agents call as tools."""

import asyncio
from collections.abc import AsyncGenerator

started = asyncio.Event()
stopped = asyncio.Event()


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
    started.set()
    try:
        await asyncio.Event().wait()
    finally:
        stopped.set()
    return ""
