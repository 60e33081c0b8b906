"""The predecessor's command line tools, as they are, against our gateway."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.failing_llm import FailingLlm
from tests.flow import predecessor_command
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.predecessor_command import folder_or_skip
from tests.within import within
from tg_base.config import ApiKey, GatewayConfig

pytestmark = pytest.mark.predecessor


@pytest.fixture(scope="session")
def bin_folder() -> Path:
    return folder_or_skip()


@pytest.fixture
async def it() -> AsyncIterator[Opened]:
    async with open_gateway() as opened:
        yield opened


async def run(folder: Path, it: Opened, tool: str, *arguments: str, token: str = "") -> tuple[str, str]:
    return await predecessor_command.run(folder, it.gateway.url, tool, *arguments, token=token)


@pytest.mark.parametrize("streaming", [(), ("--no-streaming",)])
async def test_invoke_llm(it: Opened, bin_folder: Path, streaming: tuple[str, ...]) -> None:
    out, err = await run(bin_folder, it, "tg-invoke-llm", "be brief", "3", "--show-usage", *streaming)
    assert out == "0 1 2 \n"
    assert "Input tokens: 7  Output tokens: 3  Model: counting" in err
    assert it.llm.requests[0].system == "be brief"


async def test_invoke_llm_prints_as_it_comes(it: Opened, bin_folder: Path) -> None:
    it.llm.step = asyncio.Semaphore(0)
    process = await asyncio.create_subprocess_exec(
        bin_folder / "tg-invoke-llm", "-u", it.gateway.url, "s", "2", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    for word in (b"0 ", b"1 "):
        it.llm.step.release()
        assert await asyncio.wait_for(process.stdout.readexactly(2), 60) == word
    assert await asyncio.wait_for(process.stdout.read(), 60) == b"\n"
    await process.wait()


async def test_list_models(it: Opened, bin_folder: Path) -> None:
    out, _ = await run(bin_folder, it, "tg-list-models")
    assert out == f"{it.llm.model}\n"


@pytest.mark.parametrize("streaming", [(), ("--no-streaming",)])
async def test_invoke_prompt(it: Opened, bin_folder: Path, streaming: tuple[str, ...]) -> None:
    out, err = await run(bin_folder, it, "tg-invoke-prompt", "text", "a=x=y", "b=z", "--show-usage", *streaming)
    assert out == 'a="x=y" b="z" \n'
    assert "Input tokens: 2  Output tokens: 2  Model: echo" in err


@pytest.mark.parametrize("streaming", [(), ("--no-streaming",)])
async def test_invoke_prompt_for_an_object(it: Opened, bin_folder: Path, streaming: tuple[str, ...]) -> None:
    """The tool shows only `text`; an object is an empty line to it, from the predecessor's own gateway as well."""
    out, err = await run(bin_folder, it, "tg-invoke-prompt", "object", "a=1", "--show-usage", *streaming)
    assert out == "\n"
    assert "Model: echo" in err


@pytest.mark.parametrize("streaming", [(), ("--no-streaming",)])
async def test_errors_are_seen(it: Opened, bin_folder: Path, streaming: tuple[str, ...]) -> None:
    """These tools print errors on stdout and exit with 0; what matters is that they see them, and end."""
    template, flow, empty = await asyncio.gather(
        run(bin_folder, it, "tg-invoke-prompt", "nope", *streaming),
        run(bin_folder, it, "tg-invoke-llm", "-f", "nope", "s", "1", *streaming),
        run(bin_folder, it, "tg-invoke-llm", "s", "", *streaming),
    )
    assert "no template has this id" in template[0]
    assert "no flow has this id" in flow[0]
    assert "prompt is missing" in empty[0]


async def test_an_error_in_mid_stream_is_seen(bin_folder: Path) -> None:
    async with open_gateway(llm=FailingLlm()) as it:
        streamed, whole = await asyncio.gather(
            run(bin_folder, it, "tg-invoke-llm", "s", "2"),
            run(bin_folder, it, "tg-invoke-llm", "s", "2", "--no-streaming"),
        )
    assert streamed[0].startswith("0 1 ")
    assert "terminal marker" in streamed[0]
    assert "terminal marker" in whole[0]


async def test_tokens(bin_folder: Path) -> None:
    key = ApiKey(name="cli", sha256=hashlib.sha256(b"tg_right").hexdigest())
    async with open_gateway(GatewayConfig(port=0, keys=(key,))) as it:
        right, wrong, none = await asyncio.gather(
            run(bin_folder, it, "tg-invoke-llm", "s", "1", token="tg_right"),
            run(bin_folder, it, "tg-invoke-llm", "s", "1", token="tg_wrong"),
            run(bin_folder, it, "tg-invoke-llm", "s", "1"),
        )
    assert right[0] == "0 \n"
    assert "bearer token or key is not known" in wrong[0]
    assert "bearer token" in none[0]


async def test_show_flows(it: Opened, bin_folder: Path) -> None:
    out, _ = await run(bin_folder, it, "tg-show-flows")
    assert "default" in out


async def test_a_tool_that_is_killed_stops_the_model(it: Opened, bin_folder: Path) -> None:
    it.llm.step = asyncio.Semaphore(1)
    process = await asyncio.create_subprocess_exec(
        bin_folder / "tg-invoke-llm", "-u", it.gateway.url, "s", "1000", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readexactly(2), 60)
    process.kill()
    await within(10, it.llm.stopped.wait())
    assert it.llm.generated == 1
    await process.wait()
