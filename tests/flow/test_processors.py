"""Configuration -> running processors: how many there are, for which models and queues."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
from typing_extensions import override

from tests.flow.serve_context import context_of
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor, prompt_request
from tg_base.config import ConfigWatcher
from tg_base.llm import LlmChunk, LlmService
from tg_flow.prompt import PromptKind
from tg_flow.providers import TextCompletionKind
from tg_picker.core.peers.delta import Heartbeat, decode_delta
from tg_schema import TextCompletionRequest
from tg_schema.errors import NotFound, Unavailable
from tg_schema.topics import Topics


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    bus = MemoryBus()
    yield bus
    await bus.aclose()


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
