"""Key -> connection: one provider's client, replaced when the key in its file changes.

Each SDK stores the key in its own place, some in several. Replacing the client avoids knowing these places.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from tg_base.llm.credentials import Key
from tg_base.llm.key_file import KeyFile
from tg_base.runtime import start_daemon_thread


class Closing(Protocol):
    """A connection that can be closed."""

    async def aclose(self) -> None:
        """Close it, together with the requests that run on it."""


Connection = TypeVar("Connection", bound=Closing)
Connect = Callable[[str | None], Connection]
"""Creates a client for a key, without sending a request. It may block, as SDKs do while they import and create one."""


@dataclass(slots=True)
class Lease(Generic[Connection]):
    """A connection, the key that it sends, and the number of requests that use it."""

    connection: Connection
    key: str | None
    users: int = 0


class KeyedConnection(Generic[Connection]):
    """Lends the connection for the current key; create it with `open`."""

    def __init__(self, key: Key, connect: Connect[Connection], first: Lease[Connection]) -> None:
        self._file = key if isinstance(key, KeyFile) else None
        self._connect = connect
        self._lease = first
        self._renewing = asyncio.Lock()

    @classmethod
    async def open(cls, key: Key, connect: Connect[Connection]) -> Self:
        """Create the first connection.

        `connect` runs in a daemon thread, so an SDK that looks for credentials cannot keep the process alive.

        Raises:
            TgError: there is no key, or `connect` raised it.
        """
        first = await key.read() if isinstance(key, KeyFile) else key
        return cls(key, connect, await _lease(connect, first))

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Connection]:
        """The connection for one request. After a key rotation the old one is closed when its last request ends."""
        lease = await self.take()
        try:
            yield lease.connection
        finally:
            await self.give_back(lease)

    async def take(self) -> Lease[Connection]:
        """The lease for one request; hand it to `give_back` afterwards."""
        if self._file is not None:
            await self._renew(self._file)
        self._lease.users += 1
        return self._lease

    async def give_back(self, lease: Lease[Connection]) -> None:
        """End a request's use of its connection."""
        lease.users -= 1
        await self._close_unused(lease)

    async def aclose(self) -> None:
        """Close the connection for the current key."""
        await self._lease.connection.aclose()

    async def _renew(self, file: KeyFile) -> None:
        if await file.read() == self._lease.key:
            return
        async with self._renewing:
            # Read again: another request may have renewed the connection while this one waited for the lock.
            key, old = await file.read(), self._lease
            if key != old.key:
                self._lease = await _lease(self._connect, key)
                await self._close_unused(old)

    async def _close_unused(self, lease: Lease[Connection]) -> None:
        if lease is not self._lease and not lease.users:
            await lease.connection.aclose()


async def _lease(connect: Connect[Connection], key: str | None) -> Lease[Connection]:
    return Lease(await start_daemon_thread(lambda: connect(key), "connect"), key)
