"""Commands whose answers are kept: cut and whole, stopped by Ctrl-C, and gone on with by another command."""

import asyncio
import random
import re
import signal

import pytest

from tests.fakes.cutting_proxy import CuttingProxy
from tests.fakes.scripted_agent import ScriptedAgent
from tests.flow.command import ended, ran, started
from tests.flow.kept_streams import MANY, Pair, open_agent_pair, open_pair
from tests.flow.test_resumed_streams import TEXT, WORDS, cutting, draw_cuts, port_of
from tests.until import AT_ONCE_SECONDS

LLM, PROMPT, AGENT, CHAT = "tg-invoke-llm", "tg-invoke-prompt", "tg-invoke-agent", "tg-chat"
KEEP = ("--keep", "10m")
CLOSED_PORT = 9


async def test_a_command_that_is_cut_prints_the_one_text() -> None:
    given = [f"n{number}:={number}" for number in range(WORDS)]
    terms = "".join(f"n{number}={number} " for number in range(WORDS))
    async with open_pair() as it:
        it.step(WORDS)
        for arguments, text in (((LLM, "", str(WORDS)), TEXT), ((PROMPT, "text", *given), terms)):
            async with cutting(it, draw_cuts(2)) as proxy:
                done = await ran(*arguments, *KEEP, "-u", proxy.url)
                assert (done.code, done.out, proxy.cut) == (0, f"{text}\n", 2), done.err
        assert len(it.llm.requests) == 1


async def test_a_chat_that_is_cut_has_the_one_text() -> None:
    async with open_pair() as it, cutting(it, draw_cuts(2)) as proxy:
        it.step(WORDS)
        done = await ran(CHAT, *KEEP, "-u", proxy.url, data=f"{WORDS}\n".encode())
        assert (done.code, done.out.strip(), len(it.llm.requests)) == (0, TEXT.strip(), 1), done.err


async def test_an_agent_that_is_cut_prints_the_one_answer() -> None:
    agent = ScriptedAgent()
    async with open_agent_pair(agent) as (one, other):
        ports = [port_of(http) for http in (one, other)]
        async with CuttingProxy.before(lambda: random.choice(ports), draw_cuts(2)) as proxy:
            done = await ran(AGENT, "2 + 3?", *KEEP, "-u", proxy.url)
        assert (done.code, len(agent.requests)) == (0, 1), done.err
        assert done.out == (await ran(AGENT, "2 + 3?", "-u", str(one._base_url))).out


async def test_ctrl_c_stops_the_model() -> None:
    async with open_pair() as it, cutting(it, iter([0])) as proxy:
        it.step(3)
        async with started(LLM, "", MANY, *KEEP, "-u", proxy.url) as process:
            assert process.stdout is not None
            # It was cut before, and has attached.
            await asyncio.wait_for(process.stdout.readuntil(b"2 "), 20)
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(AT_ONCE_SECONDS):
                await it.llm.stopped.wait()
            assert (await ended(process)).code == 130
        it.step(10)
        assert (it.llm.generated, proxy.cut) == (3, 1)


async def lose(it: Pair, after: int, *options: str) -> tuple[str, str]:
    """What a command prints whose gateways go away for good, after so many bytes of its stream."""
    ports = iter([port_of(it.one)])
    async with CuttingProxy.before(lambda: next(ports, CLOSED_PORT), iter([after])) as proxy:
        done = await ran(LLM, "", str(WORDS), *options, "-u", proxy.url)
    assert done.code == 1
    return done.out, done.err


async def test_what_a_command_has_lost_another_one_goes_on_with() -> None:
    async with open_pair() as it:
        it.step(WORDS)
        out, err = await lose(it, random.randrange(100, 1000), *KEEP)
        found = re.search(r"the answer goes on: (tg-invoke-llm) --attach (ks-\S+) --after (\S+)\n", err)
        assert found is not None, err
        options = ("--attach", found[2], "--after", found[3], "--show-usage")
        rest = await ran(found[1], *options, "-u", str(it.other._base_url))
        assert (out.removesuffix("\n") + rest.out, rest.code) == (f"{TEXT}\n", 0)
        assert f"Output tokens: {WORDS}" in rest.err
        again = await ran(LLM, "--attach", found[2], "-u", str(it.one._base_url))
        assert again.out == f"{TEXT}\n"
        assert len(it.llm.requests) == 1


async def test_what_is_not_kept_is_not_promised() -> None:
    async with open_pair() as it, CuttingProxy.before(lambda: CLOSED_PORT, iter([])) as proxy:
        done = await ran(LLM, "", "1", *KEEP, "-u", proxy.url)
        assert (done.code, "--attach" in done.err) == (1, False)
        gone = await ran(LLM, "--attach", "ks-1", "-u", str(it.one._base_url))
        assert (gone.code, "--attach" in gone.err) == (1, False)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--keep", "1d"), 1, "90s, 10m or 2h"),
        (("--keep", ""), 1, "90s, 10m or 2h"),
        (("--attach", "ks-1", "--after", "x"), 2, "'--after'"),
        (("--attach", "ks-1", "--after", "-2"), 2, "'--after'"),
    ],
)
@pytest.mark.parametrize("command", [LLM, PROMPT, AGENT])
async def test_what_is_no_value_is_refused(command: str, options: tuple[str, ...], code: int, said: str) -> None:
    done = await ran(command, "x", *options, "-u", "http://127.0.0.1:9")
    assert (done.code, said in done.err) == (code, True), done.err
