"""examples/agent, as a newcomer runs it: served by `tg-serve`, asked by `tg-invoke-agent` and by the SDK."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.flow.command import ran, started
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
        assert server.stdout is not None
        ready = await asyncio.wait_for(server.stdout.readline(), 30)
        yield ready.decode().split()[1]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ('How many lines mention "apple", times 12?', "4 lines mention it, so it is 48."),
        ("What is (14 * 9) * 60?", "It is 7560."),
        ('Which lines mention "february"?', "orchard.txt:2: Apple trees are pruned in February.\n1 lines found"),
        ("What is 1 / 0?", "I cannot tell: error: 1 / 0 cannot be worked out"),
        ("Who are you?", 'I can only search the notes for a "quoted text", and calculate.'),
    ],
)
async def test_questions(url: str, question: str, answer: str) -> None:
    done = await ran("tg-invoke-agent", question, "-u", url)
    assert (done.code, done.out, done.err) == (0, f"{answer}\n", "")


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
