"""A provider of OpenAI's API in its own thread, whose answers never end: it costs its process hardly any memory."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fakes.openai_transcript import event, first_event

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
MAX_WAITING = 1024


@contextmanager
def held_answers(model: str) -> Iterator[str]:
    """The base URL of a provider that says "one " at once, and nothing more."""
    said = first_event(model) + event(model, {"content": "one "})
    answer = HEAD + b"%x\r\n%b\r\n" % (len(said), said)
    ended, end = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0), backlog=MAX_WAITING) as listening, ended, end:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        thread = threading.Thread(target=_serve, args=(listening, ended, answer))
        thread.start()
        try:
            yield url
        finally:
            end.send(b"!")
            thread.join()


def _serve(listening: socket.socket, ended: socket.socket, answer: bytes) -> None:
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as connections:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is ended:
                    return
                if key.fileobj is listening:
                    client = connections.enter_context(listening.accept()[0])
                    selector.register(client, selectors.EVENT_READ, answer)
                elif isinstance(key.fileobj, socket.socket):
                    _answer(selector, key.fileobj, key.data)


def _answer(selector: selectors.BaseSelector, client: socket.socket, answer: bytes) -> None:
    """Answer the first read of a request, and none that follows; whoever leaves is forgotten."""
    try:
        asked = client.recv(65536)
    except ConnectionError:
        asked = b""
    if asked:
        client.sendall(answer)
        selector.modify(client, selectors.EVENT_READ, b"")
    else:
        selector.unregister(client)
        client.close()
