"""A browser's own EventSource, behind a proxy that cuts its connections: it goes on by itself, and stops at the end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest
from msgspec import structs

from tests.browser.chromium import PageServer, chromium_or_skip
from tests.fakes.counting_llm import CountingLlm
from tests.fakes.stream_server import stream_server
from tests.flow.kept_streams import ask_native, begin, read_all
from tests.flow.open_gateway import ON_ANY_PORT, open_gateway

CUTS = 2
"""Connections that the proxy cuts; a browser waits for seconds before it opens another one."""
WORDS = 12
PAGE = """<!doctype html><script>
const source = new EventSource(new URLSearchParams(location.search).get("stream")), seen = [];
source.onmessage = event => seen.push([event.lastEventId, event.data]);
source.onerror = () => {
  if (source.readyState === EventSource.CLOSED) fetch("/report", {method: "POST", body: JSON.stringify(seen)});
};
</script>"""

pytestmark = pytest.mark.timeout(180)


@asynccontextmanager
async def cutting_proxy(address: tuple[str, int]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Passes connections on, and cuts the first ones after one event; its URL, and the heads of all requests."""
    heads = list[bytes]()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, sending = await asyncio.open_connection(*address)
        try:
            # A browser opens connections that it may never need.
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                sending.write(heads[-1])
                cuts, passed = len(heads) <= CUTS, b""
                while (data := await upstream.read(65536)) and not (cuts and b"id: " in passed):
                    passed += data
                    writer.write(data)
                    await writer.drain()
                if cuts:
                    writer.transport.abort()
        finally:
            sending.transport.abort()

    async with stream_server(pass_on) as port:
        yield f"http://127.0.0.1:{port}/", heads


async def test_an_event_source_goes_on_by_itself_and_stops_at_the_end(tmp_path: Path) -> None:
    program, environment = chromium_or_skip(tmp_path / "program")
    llm = CountingLlm()
    llm.step = asyncio.Semaphore(0)
    async with AsyncExitStack() as stack:
        page = await stack.enter_async_context(PageServer.serving(PAGE))
        it = await stack.enter_async_context(
            open_gateway(structs.replace(ON_ANY_PORT, origins=(page.origin,)), llm=llm)
        )
        url, heads = await stack.enter_async_context(cutting_proxy(it.address))
        first = await begin(stack, it.http, ask_native(str(WORDS)))
        query = urlencode({"stream": f"{url}v1/streams/{first.name}"})
        visiting = asyncio.create_task(page.visit(program, environment, query, tmp_path / "profile"))
        while not visiting.done():
            llm.step.release()
            await asyncio.wait([visiting], timeout=0.5)
        seen = [f"id: {number}\ndata: {data}\n\n" for number, data in json.loads(await visiting)]
        assert "".join(seen).encode() == await read_all(it.http, first.name)
        assert len(llm.requests) == 1
    lasts = [b"last-event-id" in head.lower() for head in heads]
    assert lasts[0] is False
    assert all(lasts[1:])
    assert len(heads) >= CUTS + 2
