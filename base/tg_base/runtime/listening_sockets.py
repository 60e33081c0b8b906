"""Host and port -> sockets that listen, which several processes may share."""

import errno
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

MAX_WAITING_CONNECTIONS: Final = 1024
"""Connections that the system completes and keeps until a process accepts them; further ones are tried again later."""


class SharedListener:
    """Sockets that several processes of this host accept on; their parent keeps them open.

    Args:
        sockets: listening sockets, closed with the server in this process alone; empty = the server opens its own.
        processes: how many accept on them.
        metrics: listening sockets for the metrics of this process alone.

    Attributes:
        handing_over: set before the server is left, if other processes take over. The server then accepts no more
            connections, and for a while answers one last request on each open one.
    """

    def __init__(
        self, sockets: Sequence[socket.socket] = (), processes: int = 1, metrics: Sequence[socket.socket] = ()
    ) -> None:
        self.sockets = tuple(sockets)
        self.metrics = tuple(metrics)
        self.processes = processes
        self.handing_over = False


def explain_no_listening(error: OSError | ValueError, another: str) -> str:
    """Why nothing can listen at a host and port, and what to do, as the end of a sentence.

    Args:
        error: the error from opening it.
        another: what to do if the port is in use, or not permitted to us.
    """
    number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
    if number in {errno.EADDRINUSE, errno.EACCES, errno.EPERM}:
        return f"the port is {'taken' if number == errno.EADDRINUSE else 'not allowed'}; {another}"
    if number in {errno.EMFILE, errno.ENFILE}:
        return "too many files are open; raise ulimit -n"
    if number == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror | ValueError):
        return "the host is no address of this machine; correct it"
    return f"{os.strerror(number) if number else 'taken or not allowed'}; {another}"


def open_listening_sockets(host: str, port: int) -> tuple[socket.socket, ...]:
    """Listen at every address of a host, on one port. Looking the host up may block.

    Args:
        host: a name or an address; "" = all of this machine's.
        port: 0 = any free one.

    Raises:
        OSError: there is no such address here, or the port is taken or not allowed.
        ValueError: the host cannot be a name.
    """
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[socket.socket] = []
    with ExitStack() as stack:
        for family, _, _, _, (address, _, *rest) in dict.fromkeys(found):
            try:
                # On IPv6 alone: "::" would take the port on IPv4 too, where the next socket may have to listen.
                made = socket.create_server((address, port, *rest), family=family, backlog=MAX_WAITING_CONNECTIONS)
            except OSError as error:
                # A name may also have addresses of networks that this machine lacks; one usable address is enough.
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                continue
            made.setblocking(False)
            port = made.getsockname()[1]
            opened.append(stack.enter_context(made))
        if not opened:
            raise OSError(errno.EADDRNOTAVAIL, "no address of the host is one of this machine")
        stack.pop_all()
    return tuple(opened)
