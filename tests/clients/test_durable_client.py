"""The npm client of the Durable Streams protocol reads a stream that is kept, through a proxy that cuts.

Bodies are cut at any byte, event streams behind whole writes of the gateway: the client shows events twice whose
control event has not come.
"""

import asyncio
import json
import random
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from tests.fakes.stream_server import stream_server
from tests.flow.kept_streams import DOORS, begin, open_pair
from tests.flow.test_durable_reads import values_of
from tests.npm_package import npm_package_or_skip
from tg_base.runtime import running

CLIENT = "@durable-streams/client", "0.2.7"
CUTS = 3
WORDS = 40
PROGRAM = Path(__file__).with_name("read_durably.mjs")

pytestmark = pytest.mark.timeout(400)


@asynccontextmanager
async def cutting_proxy(address: tuple[str, int], draw: Random, *, whole: bool) -> AsyncIterator[tuple[str, list[int]]]:
    """Passes connections on, and cuts the first ones after some bytes; its URL, and the bytes of each cut."""
    cuts = list[int]()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, sending = await asyncio.open_connection(*address)
        left = draw.randrange(1, 800) if len(cuts) < CUTS else 1 << 30
        cuts.append(left)

        async def up() -> None:
            with suppress(ConnectionError):
                while data := await reader.read(65536):
                    sending.write(data)

        try:
            async with running(up()):
                while left > 0 and (data := await upstream.read(65536 if whole else left)):
                    left -= len(data)
                    writer.write(data)
                    await writer.drain()
        finally:
            for each in (sending, writer):
                each.transport.abort()

    async with stream_server(pass_on) as port:
        yield f"http://127.0.0.1:{port}", cuts


def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()


@pytest.mark.clients
@pytest.mark.parametrize("live", ["long-poll", "sse"])
async def test_its_reader_gets_each_event_once_through_cuts(live: str) -> None:
    node, folder = await asyncio.to_thread(npm_package_or_skip, *CLIENT)
    draw = random.Random()
    async with open_pair() as it, AsyncExitStack() as stack:
        address = it.other._base_url
        assert address is not None
        proxy = cutting_proxy((address.host or "", address.port or 0), draw, whole=live == "sse")
        url, cuts = await stack.enter_async_context(proxy)
        first = await begin(stack, it.one, draw.choice(DOORS)(str(WORDS)))
        it.step(WORDS // 4)
        path = f"{url}/v1/streams/{first.name}"
        process = await asyncio.create_subprocess_exec(node, PROGRAM, path, live, cwd=folder, stdout=PIPE, stderr=PIPE)
        stack.callback(_end, process)
        reading = asyncio.create_task(process.communicate())
        while not reading.done():
            # Nothing is said before the program has come.
            it.step(bool(cuts))
            await asyncio.wait([reading], timeout=0.2)
        out, err = await reading
        assert process.returncode == 0, err.decode()
        assert json.loads(out) == await values_of(it.one, first.name)
        assert len(cuts) > CUTS
        assert len(it.llm.requests) == 1
