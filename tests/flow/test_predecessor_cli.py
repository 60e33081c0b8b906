"""The predecessor's command line tools, as they are, against our gateway."""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.failing_llm import FailingLlm
from tests.fakes.scripted_agent import DIALOG, ScriptedAgent
from tests.fakes.turns_llm import TurnsLlm
from tests.flow.open_agent import OpenedAgent, open_agent
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.test_agent_faults import road
from tests.missing import skip_or_fail
from tests.predecessor_tools import ToolsMissing, tools
from tests.within import within
from tg_base.config import ApiKey, GatewayConfig
from tg_schema import COMMON_FEATURES, ToolCallDelta
from tg_schema.errors import Timeout


def folder_or_skip() -> Path:
    """Where the commands are; skips the test where they can't be had, or fails it where they must."""
    try:
        return tools()
    except ToolsMissing as missing:
        skip_or_fail(str(missing))


async def run(folder: Path, url: str, tool: str, *arguments: str, token: str = "") -> tuple[str, str]:
    """What a tool prints on stdout and on stderr."""
    environment = {"PATH": os.environ["PATH"], "TRUSTGRAPH_URL": url}
    if token:
        environment["TRUSTGRAPH_TOKEN"] = token
    process = await asyncio.create_subprocess_exec(
        folder / tool,
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    return out.decode(), err.decode()


pytestmark = pytest.mark.predecessor


@pytest.fixture(scope="session")
def bin_folder() -> Path:
    return folder_or_skip()


@pytest.mark.parametrize("streaming", [(), ("--no-streaming",)])
async def test_invoke_llm(it: Opened, bin_folder: Path, streaming: tuple[str, ...]) -> None:
    out, err = await run(bin_folder, it.gateway.url, "tg-invoke-llm", "be brief", "3", "--show-usage", *streaming)
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
    out, _ = await run(bin_folder, it.gateway.url, "tg-list-models")
    assert out == f"{it.llm.model}\n"


@pytest.mark.parametrize("streaming", [(), ("--no-streaming",)])
async def test_invoke_prompt(it: Opened, bin_folder: Path, streaming: tuple[str, ...]) -> None:
    out, err = await run(
        bin_folder, it.gateway.url, "tg-invoke-prompt", "text", "a=x=y", "b=z", "--show-usage", *streaming
    )
    assert out == 'a="x=y" b="z" \n'
    assert "Input tokens: 2  Output tokens: 2  Model: echo" in err


@pytest.mark.parametrize("streaming", [(), ("--no-streaming",)])
async def test_invoke_prompt_for_an_object(it: Opened, bin_folder: Path, streaming: tuple[str, ...]) -> None:
    """The tool shows only `text`; an object is an empty line to it, from the predecessor's own gateway as well."""
    out, err = await run(bin_folder, it.gateway.url, "tg-invoke-prompt", "object", "a=1", "--show-usage", *streaming)
    assert out == "\n"
    assert "Model: echo" in err


@pytest.mark.parametrize("streaming", [(), ("--no-streaming",)])
async def test_errors_are_seen(it: Opened, bin_folder: Path, streaming: tuple[str, ...]) -> None:
    """These tools print errors on stdout and exit with 0; what matters is that they see them, and end."""
    template, flow, empty = await asyncio.gather(
        run(bin_folder, it.gateway.url, "tg-invoke-prompt", "nope", *streaming),
        run(bin_folder, it.gateway.url, "tg-invoke-llm", "-f", "nope", "s", "1", *streaming),
        run(bin_folder, it.gateway.url, "tg-invoke-llm", "s", "", *streaming),
    )
    assert "no template has this id" in template[0]
    assert "no flow has this id" in flow[0]
    assert "prompt is missing" in empty[0]


async def test_an_error_in_mid_stream_is_seen(bin_folder: Path) -> None:
    async with open_gateway(llm=FailingLlm()) as it:
        streamed, whole = await asyncio.gather(
            run(bin_folder, it.gateway.url, "tg-invoke-llm", "s", "2"),
            run(bin_folder, it.gateway.url, "tg-invoke-llm", "s", "2", "--no-streaming"),
        )
    assert streamed[0].startswith("0 1 ")
    assert "terminal marker" in streamed[0]
    assert "terminal marker" in whole[0]


async def test_tokens(bin_folder: Path) -> None:
    key = ApiKey(name="cli", sha256=hashlib.sha256(b"tg_right").hexdigest())
    async with open_gateway(GatewayConfig(port=0, keys=(key,))) as it:
        right, wrong, none = await asyncio.gather(
            run(bin_folder, it.gateway.url, "tg-invoke-llm", "s", "1", token="tg_right"),
            run(bin_folder, it.gateway.url, "tg-invoke-llm", "s", "1", token="tg_wrong"),
            run(bin_folder, it.gateway.url, "tg-invoke-llm", "s", "1"),
        )
    assert right[0] == "0 \n"
    assert "bearer token or key is not known" in wrong[0]
    assert "bearer token" in none[0]


async def test_show_flows(it: Opened, bin_folder: Path) -> None:
    out, _ = await run(bin_folder, it.gateway.url, "tg-show-flows")
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


AGENT = "tg-invoke-agent"
STREAMING = pytest.mark.parametrize("streaming", [(), ("--no-streaming",)])


@pytest.fixture
async def asked() -> AsyncIterator[OpenedAgent]:
    async with open_agent() as opened:
        yield opened


async def test_streaming(asked: OpenedAgent, bin_folder: Path) -> None:
    out, err = await run(bin_folder, asked.gateway.url, AGENT, "-q", "2 + 3?", "--show-usage")
    assert out.strip() == "It is 5."
    assert "Input tokens: 40  Output tokens: 9  Model: scripted" in err


async def test_verbose(asked: OpenedAgent, bin_folder: Path) -> None:
    """An action is a thought to this client, which hangs it on the thought before."""
    out, _ = await run(bin_folder, asked.gateway.url, AGENT, "-q", "2 + 3?", "-v")
    lines = [line for line in out.splitlines() if line.strip()]
    assert lines == ["\N{BLACK QUESTION MARK ORNAMENT} 2 + 3?", *lines[1:]]
    thought, observation, again, answer = lines[1:]
    assert thought.endswith("I must add.sum")
    assert observation.endswith("5.0")
    assert again.endswith("Done.")
    assert answer == "It is 5."


@pytest.mark.parametrize("verbose", [(), ("-v",)])
async def test_no_streaming(asked: OpenedAgent, bin_folder: Path, verbose: tuple[str, ...]) -> None:
    out, _ = await run(bin_folder, asked.gateway.url, AGENT, "-q", "2 + 3?", "--no-streaming", *verbose)
    assert out.splitlines()[-1] == "It is 5."
    assert out.count("It is 5.") == 1


@STREAMING
async def test_what_it_can_ask(asked: OpenedAgent, bin_folder: Path, streaming: tuple[str, ...]) -> None:
    arguments = ("-q", "q", "-g", "a", "b", "-s", "begun", *streaming)
    out, _ = await run(bin_folder, asked.gateway.url, AGENT, *arguments)
    assert "It is 5." in out
    (request,) = asked.agent.requests
    assert (request.question, request.group, request.state) == ("q", ("a", "b"), "begun")
    assert request.streaming is not bool(streaming)


@STREAMING
async def test_errors_of_an_agent_are_seen(asked: OpenedAgent, bin_folder: Path, streaming: tuple[str, ...]) -> None:
    flow, empty = await asyncio.gather(
        run(bin_folder, asked.gateway.url, AGENT, "-q", "q", "-f", "nope", *streaming),
        run(bin_folder, asked.gateway.url, AGENT, "-q", "", *streaming),
    )
    assert "no flow has this id" in flow[0]
    assert "question is missing" in empty[0]


@STREAMING
async def test_an_error_in_mid_dialog_is_seen(bin_folder: Path, streaming: tuple[str, ...]) -> None:
    async with open_agent(ScriptedAgent(DIALOG[:7], Timeout("the tool took too long"))) as asked:
        out, _ = await run(bin_folder, asked.gateway.url, AGENT, "-q", "q", *streaming)
    assert "the tool took too long" in out
    assert ("It is" in out) is not bool(streaming)


async def test_it_prints_as_it_comes_and_stops_the_agent_when_it_is_ended(asked: OpenedAgent, bin_folder: Path) -> None:
    asked.agent.step = asyncio.Semaphore(7)
    process = await asyncio.create_subprocess_exec(
        bin_folder / AGENT, "-u", asked.gateway.url, "-q", "q", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readuntil(b"It is "), 60)
    process.send_signal(signal.SIGKILL)
    await within(10, asked.agent.stopped.wait())
    assert asked.agent.said == 7
    await process.wait()


async def test_explainable_is_answered_too(asked: OpenedAgent, bin_folder: Path) -> None:
    out, _ = await run(bin_folder, asked.gateway.url, AGENT, "-q", "q", "-x")
    assert "It is 5." in out


@pytest.mark.parametrize(("before", "options"), [("I must add.", ()), ("x" * 300, ("--no-streaming",))])
async def test_it_prints_the_answer_alone_of_a_model_that_first_says_what_it_will_do(
    tmp_path: Path, bin_folder: Path, before: str, options: tuple[str, ...]
) -> None:
    """This client prints all that is called an answer, so what is held back before a call is not called one."""
    llm = TurnsLlm((before, ToolCallDelta(0, "c", "add", '{"a": 2}')), ("It is 3.",), features=COMMON_FEATURES)
    async with road(llm, tmp_path) as url:
        out, _ = await run(bin_folder, url, AGENT, "-q", "1 + 2?", *options)
    assert out.strip() == "It is 3."
