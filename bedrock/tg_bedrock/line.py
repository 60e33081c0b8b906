"""ThreadedStream -> the socket that its thread waits on: cut from outside, the only way to wake a thread there."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar


class Line:
    """What a thread talks over. It is entered in that thread; `cut` is for any other."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._cut = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, the connections that this thread uses belong to this line."""
        token = _line.set(self)
        try:
            yield
        finally:
            self.let_go()
            _line.reset(token)

    def cut(self) -> None:
        """End what the thread waits for, now and later, and tell the other side; does nothing outside of `held`."""
        with self._guard:
            self._cut = True
            if self._socket is not None:
                _shut(self._socket)

    def hold(self, connection: socket.socket) -> None:
        """The thread uses this socket from now on."""
        with self._guard:
            self._socket = connection
            if self._cut:
                _shut(connection)

    def let_go(self) -> None:
        """The socket is somebody else's from now on."""
        with self._guard:
            self._socket = None


def line_of_this_thread() -> Line | None:
    """The line that was entered here."""
    return _line.get()


_line: ContextVar[Line | None] = ContextVar("line", default=None)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
