"""The predecessor's `tg-invoke-agent`, as it is, against our gateway."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.scripted_agent import DIALOG, ScriptedAgent
from tests.fakes.turns_llm import TurnsLlm
from tests.flow.open_agent import OpenedAgent, open_agent
from tests.flow.predecessor_command import folder_or_skip, run
from tests.flow.test_agent_road import road
from tests.within import within
from tg_schema import COMMON_FEATURES, ToolCallDelta
from tg_schema.errors import Timeout

pytestmark = pytest.mark.predecessor
AGENT = "tg-invoke-agent"
STREAMING = pytest.mark.parametrize("streaming", [(), ("--no-streaming",)])


@pytest.fixture(scope="session")
def bin_folder() -> Path:
    return folder_or_skip()


@pytest.fixture
async def it() -> AsyncIterator[OpenedAgent]:
    async with open_agent() as opened:
        yield opened


async def test_streaming(it: OpenedAgent, bin_folder: Path) -> None:
    out, err = await run(bin_folder, it.gateway.url, AGENT, "-q", "2 + 3?", "--show-usage")
    assert out.strip() == "It is 5."
    assert "Input tokens: 40  Output tokens: 9  Model: scripted" in err


async def test_verbose(it: OpenedAgent, bin_folder: Path) -> None:
    """An action is a thought to this client, which hangs it on the thought before."""
    out, _ = await run(bin_folder, it.gateway.url, AGENT, "-q", "2 + 3?", "-v")
    lines = [line for line in out.splitlines() if line.strip()]
    assert lines == ["\N{BLACK QUESTION MARK ORNAMENT} 2 + 3?", *lines[1:]]
    thought, observation, again, answer = lines[1:]
    assert thought.endswith("I must add.sum")
    assert observation.endswith("5.0")
    assert again.endswith("Done.")
    assert answer == "It is 5."


@pytest.mark.parametrize("verbose", [(), ("-v",)])
async def test_no_streaming(it: OpenedAgent, bin_folder: Path, verbose: tuple[str, ...]) -> None:
    out, _ = await run(bin_folder, it.gateway.url, AGENT, "-q", "2 + 3?", "--no-streaming", *verbose)
    assert out.splitlines()[-1] == "It is 5."
    assert out.count("It is 5.") == 1


@STREAMING
async def test_what_it_can_ask(it: OpenedAgent, bin_folder: Path, streaming: tuple[str, ...]) -> None:
    arguments = ("-q", "q", "-g", "a", "b", "-s", "begun", *streaming)
    out, _ = await run(bin_folder, it.gateway.url, AGENT, *arguments)
    assert "It is 5." in out
    (asked,) = it.agent.requests
    assert (asked.question, asked.group, asked.state) == ("q", ("a", "b"), "begun")
    assert asked.streaming is not bool(streaming)


@STREAMING
async def test_errors_are_seen(it: OpenedAgent, bin_folder: Path, streaming: tuple[str, ...]) -> None:
    flow, empty = await asyncio.gather(
        run(bin_folder, it.gateway.url, AGENT, "-q", "q", "-f", "nope", *streaming),
        run(bin_folder, it.gateway.url, AGENT, "-q", "", *streaming),
    )
    assert "no flow has this id" in flow[0]
    assert "question is missing" in empty[0]


@STREAMING
async def test_an_error_in_mid_dialog_is_seen(bin_folder: Path, streaming: tuple[str, ...]) -> None:
    async with open_agent(ScriptedAgent(DIALOG[:7], Timeout("the tool took too long"))) as it:
        out, _ = await run(bin_folder, it.gateway.url, AGENT, "-q", "q", *streaming)
    assert "the tool took too long" in out
    assert ("It is" in out) is not bool(streaming)


async def test_it_prints_as_it_comes_and_stops_the_agent_when_it_is_ended(it: OpenedAgent, bin_folder: Path) -> None:
    it.agent.step = asyncio.Semaphore(7)
    process = await asyncio.create_subprocess_exec(
        bin_folder / AGENT, "-u", it.gateway.url, "-q", "q", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readuntil(b"It is "), 60)
    process.send_signal(signal.SIGKILL)
    await within(10, it.agent.stopped.wait())
    assert it.agent.said == 7
    await process.wait()


async def test_explainable_is_answered_too(it: OpenedAgent, bin_folder: Path) -> None:
    out, _ = await run(bin_folder, it.gateway.url, AGENT, "-q", "q", "-x")
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
