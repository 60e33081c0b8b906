"""Pools of connections -> sessions: one session for all models of a process that connect in the same way."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary


class Closable(Protocol):
    """A session of the HTTP client."""

    async def close(self) -> None:
        """Close its connections."""


Settings = TypeVar("Settings", bound=Hashable)
Session = TypeVar("Session", bound=Closable)


class _Shared(Generic[Session]):
    """One open session, and how many use it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.users = 0


class SharedSessions(Generic[Settings, Session]):
    """The open sessions of each event loop. Settings that are equal have the same session.

    Args:
        create: opens a session with these settings, on the running loop.
    """

    def __init__(self, create: Callable[[Settings], Session]) -> None:
        self._create = create
        # By loop, because a session belongs to one, and tests have many.
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Settings, _Shared[Session]]] = WeakKeyDictionary()

    def enter(self, settings: Settings) -> Session:
        """The session with these settings, which stays open until `leave` was called for each `enter`."""
        sessions = self._open.setdefault(asyncio.get_running_loop(), {})
        if settings not in sessions:
            sessions[settings] = _Shared(self._create(settings))
        shared = sessions[settings]
        shared.users += 1
        return shared.session

    async def leave(self, settings: Settings) -> None:
        """Close the session if nobody else uses it. Called once for each `enter`, on the same loop."""
        loop = asyncio.get_running_loop()
        sessions = self._open[loop]
        sessions[settings].users -= 1
        if not sessions[settings].users:
            shared = sessions.pop(settings)
            if not sessions:
                del self._open[loop]
            await shared.session.close()
