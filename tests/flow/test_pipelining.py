"""A client that asks again and again before it is answered, and leaves."""

import asyncio
import json
import sys

import pytest

from tests.flow.open_gateway import open_gateway, until_listed
from tests.flow.raw_http import PATIENCE_SECONDS, raw_connection
from tests.until import until
from tg_gateway.http_connections import abort_left

ASKED_BEHIND = 100
"""Requests; the server reads no more behind 32."""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the server sees it when it reads again")
@pytest.mark.parametrize("leaving", ["close", "abort"])
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_client_that_leaves_behind_many_requests_stops_the_model(leaving: str, *, streaming: bool) -> None:
    async with open_gateway() as it:
        await until_listed(it.http)
        it.llm.step = asyncio.Semaphore(0)
        async with raw_connection(it.address) as raw:
            body = {"prompt": "100", "streaming": streaming}
            raw.post("/api/v1/text-completion", json.dumps(body).encode())
            raw.send(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n" * ASKED_BEHIND)
            await it.llm.started.wait()
            getattr(raw.writer.transport, leaving)()
            await asyncio.wait_for(it.llm.stopped.wait(), PATIENCE_SECONDS)


async def test_requests_behind_one_that_takes_long_are_all_answered() -> None:
    async with open_gateway() as it:
        await until_listed(it.http)
        it.llm.step = asyncio.Semaphore(0)
        async with raw_connection(it.address) as raw:
            raw.post("/api/v1/text-completion", b'{"prompt":"1"}')
            raw.send(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n" * ASKED_BEHIND)
            await it.llm.started.wait()
            runner = it.gateway._runner
            await until(
                lambda: any(not open_.transport.is_reading() for open_ in runner.connections if open_.transport)
            )
            abort_left(runner)
            it.llm.step.release()
            for _ in range(1 + ASKED_BEHIND):
                head = await raw.until(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 ")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await asyncio.wait_for(raw.reader.readexactly(int(length.split(b":")[1])), PATIENCE_SECONDS)
