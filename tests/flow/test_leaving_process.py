"""A process that leaves: what its services still run has one grace together, not one for each of them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from tests.fakes.echo_service import EchoConfig, EchoKind, EchoRequest, EchoResponse, EchoService
from tests.virtual_time import in_virtual_time
from tg_base.bus import Bus
from tg_base.client import Client, Requestor
from tg_base.llm import LlmChunk, LlmService
from tg_base.protocol import Route
from tg_base.server import Opened, ServeContext
from tg_schema import TextCompletionRequest
from tg_schema.errors import Unavailable
from tg_serve.launcher import launch
from tg_serve.options import ServeOptions

GRACE = 5.0
HERE = "tests.flow.test_leaving_process"
FILE = f"""[gateway]
port = 0
[models.endless]
provider = "{HERE}:EndlessModel"
[flows]
a.echo = {{}}
b.echo = {{}}
b.text-completion.model = "endless"
"""
WITH_ECHO = {"echo": f"{HERE}:EndlessKind"}


class EndlessModel(LlmService):
    """Says a word, and never ends."""

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        yield LlmChunk(text="word")
        await asyncio.Event().wait()


class EndlessEcho(EchoService):
    """The same."""

    @override
    async def on_request(self, request: EchoRequest) -> AsyncGenerator[EchoResponse, None]:
        yield EchoResponse("word")
        await asyncio.Event().wait()


class EndlessKind(EchoKind):
    """Its flows, and the bus that they are asked on."""

    bus: Bus

    @override
    async def open(self, context: ServeContext, stack: AsyncExitStack) -> AsyncGenerator[Opened, None]:
        type(self).bus = context.bus
        for route in self.routes(context.config):
            yield Opened(EndlessEcho(EchoConfig()), (route,))


@in_virtual_time
async def test_all_services_of_a_process_have_one_grace_together(tmp_path: Path) -> None:
    file = tmp_path / "tg.toml"
    file.write_text(FILE)
    options = ServeOptions(file=file, services=WITH_ECHO, drain=GRACE)
    time, begun, ends = asyncio.get_running_loop().time, asyncio.Semaphore(0), list[float]()

    async def read(client: Client[Any, Any], request: object) -> None:
        async with client.stream(request) as records:
            async for _ in records:
                begun.release()

    async def stream(client: Client[Any, Any], request: object) -> None:
        with pytest.raises(Unavailable, match="the processor shuts down"):
            await read(client, request)
        ends.append(time())

    async with AsyncExitStack() as process:
        config, _ = await process.enter_async_context(launch(options))
        async with Requestor(EndlessKind.bus, config.topics) as requestor:
            asked: list[tuple[Route[Any, Any], object]]
            asked = [(route, EchoRequest("x", streaming=True)) for route in config.routes("echo")]
            asked += [(r, TextCompletionRequest(prompt="x", streaming=True)) for r in config.routes("text-completion")]
            tasks = [asyncio.create_task(stream(Client(requestor, route), request)) for route, request in asked]
            for _ in tasks:
                await begun.acquire()
            started = time()
            await process.aclose()
            await asyncio.gather(*tasks)
    assert [round(end - started) for end in ends] == [GRACE] * 3
