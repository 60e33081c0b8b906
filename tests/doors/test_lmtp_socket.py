"""`LmtpSocket`: who asks may leave at any time."""

import asyncio
from typing import cast

import pytest

from tg_client.transport.lmtp import LmtpSocket
from tg_client.transport.websocket_connection import WebSocketConnection

TURNS = 8
"""Of the event loop, in which all that is ready happens here."""


class _Connection:
    """The gateway's messages are what a test puts there."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[str | None] = asyncio.Queue()

    async def receive(self) -> str | None:
        return await self.messages.get()

    async def send(self, text: bytes) -> None:
        """Nobody answers."""


async def _turn(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(TURNS))
async def test_a_cancel_that_comes_with_a_token_is_not_lost(turns: int) -> None:
    connection = _Connection()
    socket = LmtpSocket(cast(WebSocketConnection, connection), "http://here/", 10, "m")

    async def take() -> None:
        async for _ in socket.generate({}):
            pass

    reading, taking = asyncio.create_task(socket.read()), asyncio.create_task(take())
    await _turn(TURNS)
    connection.messages.put_nowait('TOKEN [{"stream_id":1,"token":7,"finish_reason":null}]')
    await _turn(turns)
    taking.cancel()
    await _turn(TURNS)
    assert taking.cancelled()
    connection.messages.put_nowait(None)
    await reading
    assert socket.lost
