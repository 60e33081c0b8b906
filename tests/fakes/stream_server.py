"""A server of streams on loopback: at its end, what it serves is cancelled and its connections are gone.

asyncio's own leaves both to the loop's end, which cancels the tasks and closes no socket.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def stream_server(serve: Serve, **options: Any) -> AsyncIterator[int]:
    """Serve each connection, and close it behind `serve`; yields the port.

    Args:
        serve: an error of it that no client's leaving has caused is raised at the end.
        options: of `asyncio.start_server`; without `sock`, it listens on a free port.
    """
    connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
    ended = False

    # No coroutine: a task that is cancelled before its first step would never close anything.
    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if ended:
            writer.transport.abort()
        else:
            connections[writer] = asyncio.create_task(converse(reader, writer))

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await serve(reader, writer)
        finally:
            writer.close()

    if "sock" not in options:
        options.update(host="127.0.0.1", port=0)
    server = await asyncio.start_server(accept, **options)  # noqa: TID251 - it closes them
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        ended = True
        for writer, task in connections.items():
            task.cancel()
            # asyncio's transport has no loop, if it was closed before all was sent, and has sent it since.
            with suppress(AttributeError):
                writer.transport.abort()
        for writer in connections:
            with suppress(OSError):
                await writer.wait_closed()
        for end in await asyncio.gather(*connections.values(), return_exceptions=True):
            if isinstance(end, Exception):
                raise end
