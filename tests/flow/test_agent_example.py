"""The agents of examples/agent and of docs/agents.md, as a newcomer runs them."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.flow.command import out_of, ran, started
from tg_client import Action, Answer, Observation, TgClient, Thought

FOLDER = Path(__file__).parents[2] / "examples" / "agent"


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """The example's gateway; without the pauses, which are for people."""
    config = tmp_path / "tokengrid.toml"
    text = (FOLDER / "tokengrid.toml").read_text("utf-8")
    config.write_text(text.replace("{ pause = 0.04 }", "{ pause = 0.0 }"), "utf-8")
    options = ("--config", str(config), "--port", "0", "--log-level", "error")
    async with started("tg-serve", *options, PYTHONPATH=str(FOLDER)) as server:
        ready = await asyncio.wait_for(out_of(server).readline(), 30)
        yield ready.decode().split()[1]


QUESTIONS = {
    'How many lines mention "apple", times 12?': "4 lines mention it, so it is 48.",
    "What is (14 * 9) * 60?": "It is 7560.",
    'Which lines mention "february"?': "orchard.txt:2: Apple trees are pruned in February.\n1 lines found",
    "What is 1 / 0?": "I cannot tell: error: 1 / 0 cannot be worked out",
    "Who are you?": 'I can only search the notes for a "quoted text", and calculate.',
}


async def test_questions(url: str) -> None:
    for question, answer in QUESTIONS.items():
        done = await ran("tg-invoke-agent", question, "-u", url)
        assert (done.code, done.out, done.err) == (0, f"{answer}\n", ""), question


async def test_every_step_is_seen(url: str) -> None:
    async with TgClient(url, retries=0) as client:
        trace = await client.flow().agent('How many lines mention "hive", times 2.5?')
    assert [type(said) for said in trace.messages] == [
        Thought,
        Action,
        Observation,
        Thought,
        Action,
        Observation,
        Thought,
        Answer,
    ]
    assert [(step.action, step.arguments) for step in trace.steps] == [
        ("search_notes", {"text": "hive"}),
        ("calculator", {"expression": "2 * 2.5"}),
    ]
    assert trace.steps[0].observation == (
        "bees.txt:1: There are 6 hives behind the apple trees.\n"
        "bees.txt:2: A hive gives 20 kg of honey a year.\n2 lines found"
    )
    assert trace.answer == "2 lines mention it, so it is 5.0."
    assert (trace.in_token or 0) > 0
    assert (trace.out_token or 0) > 20


async def test_the_page_shows_what_happens(url: str) -> None:
    page = (FOLDER.parents[1] / "docs" / "agents.md").read_text("utf-8")
    question, _, shown = page.partition("$ make agent-demo\n> ")[2].partition("```")[0].partition("\n")
    done = await ran("tg-invoke-agent", "-v", question, "-u", url)
    assert f"{done.err}\n{done.out}" == shown


async def test_the_demo() -> None:
    done = await ran("scripts/agent-demo", "What is 2 * 21?")
    assert (done.code, done.out) == (0, "> What is 2 * 21?\nIt is 42.\n")


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "agents.md").read_text("utf-8")


def block(language: str) -> str:
    """The page's first block in a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
async def page_url(tmp_path: Path) -> AsyncIterator[str]:
    (tmp_path / "units.py").write_text(block("python"), "utf-8")
    provider = "tests.fakes.obedient_llm:ObedientLlm"
    config = re.sub(r'provider = "openai".*\noptions = .*\n', f'provider = "{provider}"\n', block("toml"), count=1)
    assert provider in config
    (tmp_path / "tokengrid.toml").write_text(config, "utf-8")
    options = ("--config", str(tmp_path / "tokengrid.toml"), "--port", "0", "--log-level", "error")
    async with started("tg-serve", *options, PYTHONPATH=f"{tmp_path}:{ROOT}") as server:
        ready = await asyncio.wait_for(out_of(server).readline(), 30)
        yield ready.decode().split()[1]


async def test_the_tool(page_url: str) -> None:
    async with TgClient(page_url, retries=0) as client:
        flow = client.flow()
        (told,) = msgspec.json.decode((await flow.agent("tools")).answer)
        answers = [
            (await flow.agent(f"to_metres {arguments}")).answer
            for arguments in ('{"amount": 2, "unit": "mile"}', '{"amount": 2, "unit": "ell"}', '{"amount": "two"}')
        ]
    assert (told["name"], told["description"]) == ("to_metres", "Convert a length to metres.")
    assert told["parameters"]["properties"] == {
        "amount": {"type": "number"},
        "unit": {"type": "string", "description": "mile, yard or foot"},
    }
    assert answers[:2] == ["3218.688", "error: there is no unit ell; there are mile, yard, foot"]
    assert answers[2].startswith("error: the arguments do not fit the tool's schema")


def test_ten_lines() -> None:
    code = [line for line in block("python").splitlines() if line]
    assert len(code) <= 10
