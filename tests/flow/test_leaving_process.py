"""Processors that come and leave while requests are on their way: what is still read, and one grace for all."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from tests.fakes.echo_service import EchoConfig, EchoKind, EchoRequest, EchoResponse, EchoService
from tests.fakes.held_bus import HeldBus
from tests.flow.open_gateway import TEXTS, Opened, open_gateway
from tests.flow.raw_http import raw_connection
from tests.flow.serve_context import context_of
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor, prompt_request
from tg_base.config import ConfigWatcher, GatewayConfig
from tg_base.llm import LlmChunk, LlmService
from tg_base.protocol import Route
from tg_base.server import Opened as OpenedService
from tg_base.server import ServeContext
from tg_flow.prompt import PromptKind
from tg_flow.providers import TextCompletionKind
from tg_picker.core.peers.delta import Heartbeat, decode_delta
from tg_schema import TextCompletionRequest
from tg_schema.errors import NotFound, Unavailable
from tg_schema.topics import Topics
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
    async def open(self, context: ServeContext, stack: AsyncExitStack) -> AsyncGenerator[OpenedService, None]:
        type(self).bus = context.bus
        for route in self.routes(context.config):
            yield OpenedService(EndlessEcho(EchoConfig()), (route,))


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


PATH = "/api/v1/text-completion"


async def ask(it: Opened) -> dict[str, object]:
    async with it.http.post(PATH, json={"prompt": "2"}) as response:
        answer: dict[str, object] = await response.json()
    return answer


@in_virtual_time
async def test_what_the_bus_has_not_taken_yet_may_finish() -> None:
    bus = HeldBus(MemoryBus())
    bus.held.add(TEXTS[0].request)
    async with open_gateway(GatewayConfig(port=0, drain=60), bus=bus) as it:
        asking = asyncio.create_task(ask(it))
        await bus.waiting.wait()
        leaving = asyncio.create_task(it.gateway.__aexit__(None, None, None))
        # Less than the bus may take, and more than handlers get at the end.
        assert await asyncio.wait([leaving], timeout=4) == (set(), {leaving})
        bus.open.set()
        assert (await asking)["response"] == "0 1 "
        await leaving


@in_virtual_time
async def test_what_the_bus_takes_when_the_time_is_over_ends_with_an_error() -> None:
    bus = HeldBus(MemoryBus())
    bus.held.add(TEXTS[0].request)
    async with open_gateway(GatewayConfig(port=0, drain=0), bus=bus) as it:
        it.llm.step = asyncio.Semaphore(0)
        asking = asyncio.create_task(ask(it))
        await bus.waiting.wait()
        leaving = asyncio.create_task(it.gateway.__aexit__(None, None, None))
        await asyncio.wait([leaving], timeout=0.5)
        bus.open.set()
        assert "shutting down" in str((await asking)["error"])
        await leaving


@in_virtual_time
async def test_a_gateway_that_hands_over_answers_what_it_still_reads() -> None:
    """A large body takes its time."""
    sent = json.dumps({"prompt": "2"}).encode()
    async with open_gateway(GatewayConfig(port=0, drain=60)) as it, raw_connection(it.address) as raw:
        raw.send(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(sent)}\r\n\r\n".encode() + sent[:5])
        await until(lambda: it.gateway._relay.reading)
        it.gateway._shared.handing_over = True
        leaving = asyncio.create_task(it.gateway.__aexit__(None, None, None))
        assert await asyncio.wait([leaving], timeout=20) == (set(), {leaving})
        raw.send(sent[5:])
        assert b'"response":"0 1 "' in await raw.rest()
        await leaving


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    async with aclosing(MemoryBus()) as bus:
        yield bus


def written(folder: Path, text: str) -> ConfigWatcher:
    file = folder / "tg.toml"
    file.write_text(text)
    return ConfigWatcher(file)


async def test_one_processor_for_each_model_that_a_flow_binds(bus: Bus, tmp_path: Path) -> None:
    config_file = written(
        tmp_path,
        """
[models.a]
provider = "openai"
options = { base_url = "http://127.0.0.1:1/v1", key_variable = "" }
[models.b]
provider = "openai"
options = { base_url = "http://127.0.0.1:1/v1", key_variable = "" }
[models.unbound]
provider = "none"
[flows]
one.text-completion.model = "a"
two.text-completion.model = "b"
three.text-completion.model = "a"
theirs.text-completion = { plain = true, request = "request:tg:x", response = "response:tg:x" }
one.prompt = {}
theirs.prompt = {}
""",
    )
    context = context_of(config_file, bus)
    async with Requestor(bus, Topics()) as requestor, TextCompletionKind().serve(context) as models:
        assert len(models) == 2
        async with PromptKind().serve(context) as prompts:
            assert len(prompts) == 2
            await until(lambda: len(list(requestor.presence)) == 4)
            served = {presence.models: len(presence.queues) for presence in requestor.presence}
            assert served == {("a",): 2, ("b",): 1, (): 1}


async def test_a_pool_tells_others_on_the_bus_of_its_process_what_it_places(bus: Bus, tmp_path: Path) -> None:
    pool = 'provider = "pool"\noptions = { endpoints = ["127.0.0.1:1"], scraped = false }\n'
    config_file = written(tmp_path, f'[models.a]\n{pool}[flows.f]\ntext-completion.model = "a"')
    async with (
        asyncio.timeout(10),
        bus.subscribe(Topics().placements, None) as told,
        TextCompletionKind().serve(context_of(config_file, bus)),
    ):
        assert isinstance(decode_delta((await anext(told)).body), Heartbeat)


async def test_a_model_that_cannot_be_opened_is_named_with_its_line(bus: Bus, tmp_path: Path) -> None:
    config_file = written(tmp_path, '\n[models.a]\nprovider = "nope"\n[flows.f]\ntext-completion.model = "a"\n')
    with pytest.raises(NotFound, match=r'tg\.toml, line 3: there is no provider "nope"'):
        await TextCompletionKind().serve(context_of(config_file, bus)).__aenter__()


class Silent(LlmService):
    """A provider at the edge of the world: it never answers."""

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        await asyncio.Event().wait()
        yield LlmChunk()


async def until_nobody_serves(requestor: Requestor, queue: str) -> float:
    """Wait until no processor of a queue is counted on; when that was."""
    await until(lambda: not requestor.presence.serving(queue))
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("drain", [0, 25])
@pytest.mark.parametrize("service", ["text-completion", "prompt"])
@in_virtual_time
async def test_what_runs_gets_the_configured_time_to_finish(tmp_path: Path, service: str, drain: int) -> None:
    model = f'[models.a]\nprovider = "{__name__}:Silent"\n'
    flow = '[flows.f]\ntext-completion.model = "a"\nprompt = {}\n'
    template = '[prompts.templates.question]\nprompt = "{{ question }}"\n'
    config_file = written(tmp_path, f"[gateway]\ndrain = {drain}\n{model}{template}{flow}")
    bus, time = MemoryBus(), asyncio.get_running_loop().time
    context = context_of(config_file, bus)
    (route,) = config_file.config.routes(service)
    request = (
        TextCompletionRequest(prompt="x")
        if service == "text-completion"
        else prompt_request("question", {"question": "x"}, streaming=True)
    )
    async with Requestor(bus, Topics()) as requestor:
        async with TextCompletionKind().serve(context), PromptKind().serve(context):
            asking = asyncio.create_task(Client(requestor, route).call(request))
            await until(lambda: any(presence.in_flight for presence in requestor.presence))
            counted = asyncio.create_task(until_nobody_serves(requestor, route.request))
            left_at = time()
        # Announced at once, while what runs goes on.
        assert (await counted) - left_at <= 1
        # The last second is for what is still to be told.
        assert drain <= time() - left_at <= drain + 1
        with pytest.raises(Unavailable, match="shuts down"):
            await asking
    await bus.aclose()
