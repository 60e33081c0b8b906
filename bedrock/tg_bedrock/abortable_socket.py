"""ThreadedStream -> the socket that its thread waits on: cut from outside, the only way to wake a thread there."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from weakref import WeakKeyDictionary


class AbortableSocket:
    """What a thread talks over. It is entered in that thread; `cut` is for any other."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._cut = False

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Inside, the sockets that this thread uses belong to this line."""
        token = _line.set(self)
        try:
            yield
        finally:
            with _guard:
                self._socket = None
            _line.reset(token)

    def hold(self, connection: socket.socket) -> None:
        """The thread uses this socket from now on; the line that had it before has it no longer."""
        with _guard:
            self._socket = connection
            _holders[connection] = self
            if self._cut:
                _shut(connection)

    def cut(self) -> None:
        """End what the thread waits for, now and later, and tell the other side; does nothing outside of `guard`."""
        with _guard:
            self._cut = True
            if self._socket is not None and _holders.get(self._socket) is self:
                _shut(self._socket)


def line_of_this_thread() -> AbortableSocket | None:
    """The line that was entered here."""
    return _line.get()


_line: ContextVar[AbortableSocket | None] = ContextVar("line", default=None)
_guard = threading.Lock()
_holders: WeakKeyDictionary[socket.socket, AbortableSocket] = WeakKeyDictionary()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
