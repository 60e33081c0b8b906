"""`tg-serve --only ...`: the pipeline as three processes over a real Apache Pulsar."""

import asyncio
import re
import shlex
import signal
import uuid
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.fakes.gated_openai import GatedOpenAi
from tests.flow.command import ended, ran, started
from tests.pulsar_server import PulsarServer

pytestmark = pytest.mark.connected


@pytest.fixture
async def provider() -> AsyncIterator[GatedOpenAi]:
    async with GatedOpenAi.listening() as provider:
        yield provider


async def test_the_commands_through_three_processes(
    provider: GatedOpenAi, pulsar: PulsarServer, tmp_path: Path
) -> None:
    provider.gate.set()
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
        target = ("-u", found[1], "-f", flow)
        done = await ran("tg-invoke-llm", "be brief", "p", "--show-usage", *target)
        assert (done.code, done.out) == (0, "one two\n")
        assert done.err.startswith("Input tokens: 5  Output tokens: 2  Model: gated")
        done = await ran("tg-invoke-prompt", "question", "question=p", *target)
        assert (done.code, done.out, done.err) == (0, "one two\n", "")
        done = await ran("tg-invoke-prompt", "nope", *target)
        assert done.code == 1
        assert 'there is no template "nope"' in done.err
        for process in (gateway, prompt, text_completion):
            process.send_signal(signal.SIGTERM)
            assert (await ended(process, within=20)).code == 0


async def ready(process: Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode()


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
