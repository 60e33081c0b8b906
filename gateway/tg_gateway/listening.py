"""Listening sockets -> HTTP server: how many connections are taken in during one turn of the event loop."""

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

from aiohttp import web

from tg_base.runtime import MAX_WAITING_CONNECTIONS

ACCEPTS_PER_TURN: Final = 32
"""Connections of a socket that are accepted in one turn: 256 that come at once are in after eight turns, and the
streams that run wait for 32 set-ups at most, about 10 ms."""


async def listen(runner: web.BaseRunner, sockets: Iterable[socket.socket]) -> None:
    """Accept on these sockets, up to `ACCEPTS_PER_TURN` connections of each in a turn; the runner closes them.

    A process that shares a socket with others takes what the others have not taken.
    """
    # uvloop accepts one connection of a listener in a turn, which takes 5 to 10 ms while 200 streams relay: the last of
    # 256 clients waited for seconds before its request was even read. asyncio's own loop accepts all that wait.
    copies = 1 if isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop) else ACCEPTS_PER_TURN
    for listener in sockets:
        for same in (listener, *(listener.dup() for _ in range(copies - 1))):
            await web.SockSite(runner, same, backlog=MAX_WAITING_CONNECTIONS).start()
