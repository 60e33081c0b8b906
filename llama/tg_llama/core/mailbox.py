"""Engine thread -> event loop: the output of a step for all streams of a loop arrives with one wake-up."""

import asyncio
from collections import deque
from typing import Protocol
from weakref import WeakKeyDictionary, ref


class Sleeper(Protocol):
    """A reader in a loop that waits for the engine."""

    def wake(self) -> None:
        """Something arrived; called in the loop."""

    def cancel(self) -> None:
        """The reader is gone."""


class Mailbox:
    """Each event loop with streams on the engine has one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # The engine outlives loops: it must not keep a closed one, with its tasks, in memory.
        self._loop = ref(loop)
        self._ready: deque[Sleeper] = deque()
        self._called = False

    @classmethod
    def here(cls) -> "Mailbox":
        """The mailbox of the running loop."""
        loop = asyncio.get_running_loop()
        return _mailboxes.setdefault(loop, cls(loop))

    def put(self, sleeper: Sleeper) -> None:
        """Engine thread: wake `sleeper` at the next `flush`."""
        self._ready.append(sleeper)

    def flush(self) -> None:
        """Engine thread, at the end of a step: call the loop, unless a call is pending."""
        if self._called or not self._ready:
            return
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._abandon()
            return
        self._called = True
        try:
            loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # closed in this moment
            self._abandon()

    def _abandon(self) -> None:
        """The loop is closed, and its readers are gone."""
        while self._ready:
            self._ready.popleft().cancel()

    def _deliver(self) -> None:
        self._called = False  # reset before the first pop: later puts schedule a new call
        ready = self._ready
        while ready:
            ready.popleft().wake()


_mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()
