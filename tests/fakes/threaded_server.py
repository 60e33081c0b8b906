"""Bytes by hand on loopback sockets, one connection after the other, from a thread: the loop may stand still."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from yarl import URL


@contextmanager
def serving(converse: Callable[[socket.socket], None]) -> Iterator[URL]:
    """A server that leaves each connection to `converse`; a further connection waits until it returns."""

    open_now: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                open_now[:] = [connection]
                with connection, suppress(OSError):
                    converse(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield URL(f"http://127.0.0.1:{listening.getsockname()[1]}/v1")
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            # A client that a failed test did not close would keep the thread.
            for connection in open_now:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            thread.join()


def receive(connection: socket.socket) -> bytes:
    """A whole request, to the end of its JSON if it is a POST; b"" when the client has left."""
    received = b""
    while not received.endswith(b"}" if received.startswith(b"P") else b"\r\n\r\n"):
        part = connection.recv(65536)
        if not part:
            return b""
        received += part
    return received


@contextmanager
def saying(head: bytes, forever: bytes = b"", times: int = -1, *, stays: bool = False) -> Iterator[URL]:
    """A server that answers a connection with `head` and then `forever`; where it `stays`, each request of it."""

    def converse(connection: socket.socket) -> None:
        while receive(connection):
            connection.sendall(head)
            if not stays:
                break
        left = times
        while forever and left:
            connection.sendall(forever)
            left -= 1

    with serving(converse) as url:
        yield url
