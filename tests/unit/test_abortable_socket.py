"""A socket that another thread cuts: the server learns it at once, also when it waits for room to send more."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tg_bedrock.abortable_socket import AbortableSocket

CONNECTIONS = 40
PATIENCE_SECONDS = 5.0
BLOCK = bytes(65_536)


def send_for_ever(listener: socket.socket) -> type[OSError]:
    """Serve one connection, and return the error that ended it: TimeoutError if the client never told."""
    server, _ = listener.accept()
    server.settimeout(PATIENCE_SECONDS)
    with server:
        try:
            while True:
                server.sendall(BLOCK)
        except OSError as error:
            return type(error)


def read_until_cut(client: socket.socket, threads: ThreadPoolExecutor) -> None:
    """Read as a stream's thread does, while another one cuts the socket."""
    abortable = AbortableSocket()
    with abortable.guard(), client, client.makefile("rb") as body, suppress(OSError):
        abortable.hold(client)
        body.read(4 * len(BLOCK))
        cutting = threads.submit(abortable.cut)
        while body.read(len(BLOCK)):
            pass
        cutting.result()


def test_a_server_that_waits_for_room_to_send_learns_that_nobody_reads_on() -> None:
    with ThreadPoolExecutor(2) as threads, socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(CONNECTIONS):
            served = threads.submit(send_for_ever, listener)
            read_until_cut(socket.create_connection(listener.getsockname()), threads)
            assert served.result() is not TimeoutError
