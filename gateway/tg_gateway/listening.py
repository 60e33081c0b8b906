"""Listening sockets -> HTTP server: how many connections are taken in during one turn of the event loop."""

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

from aiohttp import web

from tg_base.runtime import MAX_WAITING_CONNECTIONS

ACCEPTS_PER_TURN: Final = 32
"""How many connections of a socket uvloop accepts in one turn: 256 simultaneous ones take eight turns, and running
streams wait for 32 set-ups at most, about 10 ms."""

SHARED_ACCEPTS_PER_TURN: Final = 8
"""Connections in one turn of a shared socket: the process that wakes first must not take all of a burst."""


async def listen(
    runner: web.BaseRunner, sockets: Iterable[socket.socket], accepts_per_turn: int = ACCEPTS_PER_TURN
) -> None:
    """Accept on these sockets, up to this many connections of each in a turn; the runner closes them."""
    # uvloop accepts one connection of a listener in a turn, which takes 5 to 10 ms while 200 streams relay: the last of
    # 256 clients waited for seconds before its request was even read. asyncio's own loop accepts all that wait.
    copies = 1 if isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop) else accepts_per_turn
    for listener in sockets:
        for same in (listener, *(listener.dup() for _ in range(copies - 1))):
            await web.SockSite(runner, same, backlog=MAX_WAITING_CONNECTIONS).start()


async def stop_listening(runner: web.BaseRunner) -> None:
    """Stop accepting; other processes that share the sockets take the waiting connections."""
    for site in runner.sites:
        await site.stop()
