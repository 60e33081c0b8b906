"""Base of everything that runs work in the background while it is entered."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Generic, Self, TypeVar

Follower = TypeVar("Follower")


class Entered(ABC):
    """Runs while it is entered. If `_start` fails, everything that it entered is left again."""

    def __init__(self) -> None:
        self._exit = AsyncExitStack()

    @abstractmethod
    async def _start(self, stack: AsyncExitStack) -> None:
        """Start everything by entering it into the stack, which leaves it in the opposite order."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._exit.aclose()


class Watcher(Entered, Generic[Follower]):
    """Watches something while it is entered, and notifies followers of changes."""

    def __init__(self) -> None:
        super().__init__()
        self._followers: list[Follower] = []

    @contextmanager
    def follow(self, follower: Follower) -> Iterator[None]:
        """Notify the follower of every change from now on, until the block is left."""
        self._followers.append(follower)
        try:
            yield
        finally:
            self._followers.remove(follower)
