"""ThreadedStream -> the socket that its thread reads: shutting it down is the only way to wake a blocked thread."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from weakref import WeakKeyDictionary


class AbortableSocket:
    """The socket that a thread uses at present. `guard` is entered in that thread; any other may call `cut`."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._cut = False

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Inside, the sockets that this thread uses are registered here."""
        token = _current.set(self)
        try:
            yield
        finally:
            with _guard:
                self._socket = None
            _current.reset(token)

    def hold(self, connection: socket.socket) -> None:
        """Register the socket that the thread uses from now on, and unregister it from its previous user."""
        with _guard:
            self._socket = connection
            _holders[connection] = self
            # `cut` may come before the thread has a connection: then the request ends as soon as there is one.
            if self._cut:
                _shut(connection)

    def cut(self) -> None:
        """Shut the socket down, now and for later requests within `guard`; outside of it nothing happens."""
        with _guard:
            self._cut = True
            # The pool may have lent the connection to another thread meanwhile, whose stream must not end.
            if self._socket is not None and _holders.get(self._socket) is self:
                _shut(self._socket)


def socket_of_this_thread() -> AbortableSocket | None:
    """The object whose `guard` this thread has entered; None = none."""
    return _current.get()


_current: ContextVar[AbortableSocket | None] = ContextVar("socket", default=None)
_guard = threading.Lock()
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for 0 seconds."""
# Weak, so that a socket which the pool drops is not kept open by its entry here.
_holders: WeakKeyDictionary[socket.socket, AbortableSocket] = WeakKeyDictionary()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        # Closing it then resets the connection. A mere end would leave a server waiting whose send window is full.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.shutdown(socket.SHUT_RDWR)
