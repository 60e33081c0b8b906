"""A server of streams leaves no socket to a later test, which the garbage collector would fail for it."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from tests.fakes.stream_server import stream_server


@pytest.mark.parametrize("served", [0, 1], ids=["just accepted", "served"])
async def test_its_connections_end_with_it(served: int) -> None:
    sockets: list[Any] = []
    begun = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sockets.append(writer.get_extra_info("socket"))
        begun.release()
        await reader.read()

    async with stream_server(serve) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(served):
            await begun.acquire()
    assert {each.fileno() for each in sockets} <= {-1}
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await writer.wait_closed()


async def test_a_connection_that_was_closed_before_all_was_sent() -> None:
    body = b"x" * 8_000_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(body)

    async with stream_server(serve) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read(-1) == body
        writer.close()
