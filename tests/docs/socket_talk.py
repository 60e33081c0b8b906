"""A WebSocket's messages as a page shows them: `>` is sent, `<` must come."""

import asyncio

import aiohttp

from tests.docs.shown import ANYTHING, is_shown

PATH = "api/v1/socket"
"""Where a page names none."""
MESSAGE_SECONDS = 30.0


async def talk(url: str, text: str, path: str = "") -> str:
    """The same text with the messages that really came. What is sent waits for the answers that are shown before it."""
    got: list[str] = []
    lines = text.splitlines()
    async with aiohttp.ClientSession() as session, session.ws_connect(url + (path.lstrip("/") or PATH)) as socket:
        for number, line in enumerate(lines):
            if line.startswith("> "):
                got.append(line)
                await socket.send_str(line[2:])
            elif line.startswith("< "):
                elided = lines[number - 1] == ANYTHING
                await _receive_until(socket, line, got, elided=elided)
    return "\n".join(got)


async def _receive_until(socket: aiohttp.ClientWebSocketResponse, line: str, got: list[str], *, elided: bool) -> None:
    while True:
        got.append("< " + await asyncio.wait_for(socket.receive_str(), MESSAGE_SECONDS))
        if is_shown(line, got[-1]) or not elided:
            return
