"""HEAD: the head that GET would have, and not a byte behind it, since the next answer follows on the connection."""

import asyncio
import json

import pytest

from tests.flow.open_gateway import open_gateway
from tests.flow.raw_http import raw_connection
from tests.flow.socket_frames import upgrade
from tests.within import within

NEXT = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_response_that_streams_has_a_head_alone(version: str) -> None:
    """Also while the response is made: the head waits for nothing."""
    async with open_gateway() as it:
        it.llm.step = asyncio.Semaphore(0)
        asked = {"model": "counting", "input": "1", "background": True, "stream": True}
        async with it.http.post("v1/responses", json=asked) as response:
            name = json.loads((await response.content.readuntil(b"}\n\n")).partition(b"data: ")[2])["response"]["id"]
            async with raw_connection(it.address) as raw:
                raw.send(f"HEAD /v1/responses/{name}?stream=true HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
                if version == "1.1":
                    raw.send(NEXT)
                head, _, rest = (await raw.rest()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream")
            assert rest.startswith(b"HTTP/1.1 " if version == "1.1" else b"")
            # Of a connection that is not kept, its end is the end of the answer.
            assert b"data:" not in rest
            it.llm.step.release()
            assert b"response.completed" in await within(5, response.read())


@pytest.mark.parametrize("path", ["/api/v1/socket", "/v1/responses", "/lmtp"])
async def test_a_socket_is_opened_by_get_alone(path: str) -> None:
    async with open_gateway() as it, raw_connection(it.address) as raw:
        assert (await upgrade(raw, path=path, method="HEAD")).startswith(b"HTTP/1.1 405 ")
