"""`tg-serve --only ...`: the pipeline as three processes over a real Apache Pulsar, and what a process's death does."""

import asyncio
import re
import shlex
import signal
import uuid
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from tests.fakes.gated_openai import GatedOpenAi
from tests.flow.command import ended, ran, started
from tests.pulsar_server import PulsarServer
from tg_client import TgClient
from tg_schema.errors import Unavailable

pytestmark = pytest.mark.connected


@dataclass
class Processes:
    """The pipeline."""

    url: str
    flow: str
    gateway: Process
    text_completion: Process
    prompt: Process


@pytest.fixture
async def provider() -> AsyncIterator[GatedOpenAi]:
    async with GatedOpenAi.listening() as provider:
        yield provider


@pytest.fixture
async def processes(provider: GatedOpenAi, pulsar: PulsarServer, tmp_path: Path) -> AsyncIterator[Processes]:
    flow = f"f-{uuid.uuid4().hex[:8]}"
    file = tmp_path / "tokengrid.toml"
    file.write_text(
        f"""
        [models.gated]
        provider = "openai"
        options = {{ base_url = "{provider.url}", key_variable = "" }}
        [flows.{flow}]
        text-completion = {{ model = "gated" }}
        prompt = {{}}
        [prompts.templates.question]
        prompt = "{{{{ question }}}}"
        """,
        "utf-8",
    )
    common = ("--config", str(file), "--bus", pulsar.service_url, "--port", "0", "--log-level", "warning", "--only")
    async with (
        started("tg-serve", *common, "gateway") as gateway,
        started("tg-serve", *common, "text-completion") as text_completion,
        started("tg-serve", *common, "prompt") as prompt,
    ):
        lines = await asyncio.gather(ready(gateway), ready(text_completion), ready(prompt))
        assert "text-completion (gated of openai), on pulsar://" in lines[1]
        assert "prompt (1 template), on pulsar://" in lines[2]
        found = re.match(r"ready: (http://127\.0\.0\.1:\d+/) serves what is on the bus; try: ", lines[0])
        assert found, lines[0]
        yield Processes(found[1], flow, gateway, text_completion, prompt)


async def ready(process: Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode()


@asynccontextmanager
async def half_an_answer(it: Processes) -> AsyncIterator[asyncio.Task[list[str]]]:
    """A stream of which the first chunk has come; the task reads the rest."""
    async with TgClient(it.url, retries=0) as client, client.flow(it.flow).text_completion_stream("", "p") as chunks:
        assert (await anext(chunks)).response == "one "

        async def rest() -> list[str]:
            return [chunk.response or "" async for chunk in chunks]

        task = asyncio.create_task(rest())
        yield task
        task.cancel()
        await asyncio.wait([task])


async def test_the_commands_through_three_processes(provider: GatedOpenAi, processes: Processes) -> None:
    provider.gate.set()
    target = ("-u", processes.url, "-f", processes.flow)
    done = await ran("tg-invoke-llm", "be brief", "p", "--show-usage", *target)
    assert (done.code, done.out) == (0, "one two\n")
    assert done.err.startswith("Input tokens: 5  Output tokens: 2  Model: gated")
    done = await ran("tg-invoke-prompt", "question", "question=p", *target)
    assert (done.code, done.out, done.err) == (0, "one two\n", "")
    done = await ran("tg-invoke-prompt", "nope", *target)
    assert done.code == 1
    assert 'there is no template "nope"' in done.err
    for process in (processes.gateway, processes.prompt, processes.text_completion):
        process.send_signal(signal.SIGTERM)
        assert (await ended(process, within=20)).code == 0


async def test_without_a_file_a_gateway_and_a_processor_become_ready(pulsar: PulsarServer) -> None:
    """The built-in configuration has a prompt and an agent service, too: the processor's line says how to add them."""
    async with (
        started("tg-serve", "--bus", pulsar.service_url, "--only", "text-completion") as processor,
        started("tg-serve", "--bus", pulsar.service_url, "--only", "gateway", "--port", "0") as gateway,
    ):
        line = await ready(processor)
        await until_ready(gateway)
        program, *options = shlex.split(line.partition("add what else you need: ")[2])
        async with started(program, *options, "--port", "0") as others:
            await until_ready(others)


async def until_ready(gateway: Process) -> None:
    """Until its line is printed and `/ready` answers 200."""
    url = (await ready(gateway)).split()[1]
    async with aiohttp.ClientSession(url) as http, asyncio.timeout(30):
        while True:
            async with http.get("ready") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.1)


async def test_a_killed_processor_is_one_error_within_seconds(processes: Processes) -> None:
    async with half_an_answer(processes) as rest:
        processes.text_completion.kill()
        with pytest.raises(Unavailable, match="died"):
            await asyncio.wait_for(rest, 15)


async def test_a_killed_gateway_stops_the_model_within_seconds(provider: GatedOpenAi, processes: Processes) -> None:
    async with half_an_answer(processes):
        processes.gateway.kill()
        await asyncio.wait_for(provider.left.wait(), 15)


async def test_a_drained_processor_finishes_what_it_has(provider: GatedOpenAi, processes: Processes) -> None:
    async with half_an_answer(processes) as rest:
        processes.text_completion.send_signal(signal.SIGTERM)
        provider.gate.set()
        assert "".join(await asyncio.wait_for(rest, 15)) == "two"
    assert (await ended(processes.text_completion, within=20)).code == 0
