"""`tg-invoke-agent` as a process, against a gateway that really listens."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.fakes.scripted_agent import DIALOG, ScriptedAgent
from tests.flow.command import SCRIPTS, ended, out_of, ran, started, terminal_pair
from tests.flow.open_agent import OpenedAgent, open_agent
from tests.within import within
from tg_schema import AgentResponse, TgError
from tg_schema.errors import RateLimited

AGENT = "tg-invoke-agent"
STEPS = 'I must add.\n→ sum {"numbers":[2,3],"note":"n"}\n  5.0\nDone.\n'


@pytest.fixture
async def it() -> AsyncIterator[OpenedAgent]:
    async with open_agent() as opened:
        yield opened


async def test_the_answer_alone_goes_to_a_pipe(it: OpenedAgent) -> None:
    done = await ran(AGENT, "2 + 3?", "-u", it.gateway.url)
    assert (done.code, done.out, done.err) == (0, "It is 5.\n", "")
    (asked,) = it.agent.requests
    assert (asked.question, asked.streaming, asked.group, asked.state) == ("2 + 3?", True, None, None)


async def test_verbose_tells_every_step(it: OpenedAgent) -> None:
    done = await ran(AGENT, "2 + 3?", "-v", "-u", it.gateway.url)
    assert (done.code, done.out, done.err) == (0, "It is 5.\n", STEPS)


async def test_trustgraphs_flags_are_taken(it: OpenedAgent) -> None:
    flags = ("-w", "default", "-C", "default", "-l", "a plan", "-x", "--debug")
    done = await ran(AGENT, "-q", "2 + 3?", *flags, "-g", "one", "two", TRUSTGRAPH_URL=it.gateway.url)
    assert (done.code, done.out, done.err) == (0, "It is 5.\n", "")
    spelled = ("--workspace", "w", "--collection", "c", "--plan", "p", "--explainable")
    assert (await ran(AGENT, "2 + 3?", *spelled, "-u", it.gateway.url)).out == "It is 5.\n"
    assert [asked.group for asked in it.agent.requests] == [("one", "two"), None]


async def test_no_streaming(it: OpenedAgent) -> None:
    done = await ran(AGENT, "2 + 3?", "--no-streaming", "--show-usage", "-u", it.gateway.url)
    assert (done.code, done.out) == (0, "It is 5.\n")
    assert done.err == "Input tokens: 40  Output tokens: 9  Model: scripted\n"
    assert not it.agent.requests[0].streaming


async def test_each_piece_is_shown_at_once(it: OpenedAgent) -> None:
    it.agent.step = asyncio.Semaphore(0)
    shown = [
        "I must ",
        "add.\n",
        '→ sum {"numbers":[2,3],"note":"n"}\n',
        "  5",
        ".0\n",
        "Done.\n",
        "",
        "",
        "It is 5.\n",
    ]  # a pipe gets the answer when the dialog has ended
    async with started(AGENT, "q", "-v", "-u", it.gateway.url) as process:
        assert process.stderr is not None
        for number, piece in enumerate(shown):
            it.agent.step.release()
            stream = out_of(process) if number > 5 else process.stderr
            assert (await asyncio.wait_for(stream.readexactly(len(piece.encode())), 20)).decode() == piece
            async with asyncio.timeout(20):
                while True:
                    if it.agent.said > number:
                        break
                    await asyncio.sleep(0)


async def test_json_lines(it: OpenedAgent) -> None:
    done = await ran(AGENT, "q", "--json", "-u", it.gateway.url)
    records = [json.loads(line) for line in done.out.splitlines()]
    assert (done.code, done.err) == (0, "")
    assert [record["end_of_dialog"] for record in records] == [False] * (len(records) - 1) + [True]
    assert "".join(record["content"] for record in records if record["chunk_type"] == "answer") == "It is 5."
    (action,) = [record for record in records if record["chunk_type"] == "action"]
    assert (action["tool"], json.loads(action["arguments"])["numbers"]) == ("sum", [2, 3])
    assert "error" not in records[-1]
    done = await ran(AGENT, "q", "--json", "--no-streaming", "-u", it.gateway.url)
    assert json.loads(done.out)["content"] == "It is 5."


@pytest.mark.parametrize(
    ("arguments", "stdin", "question", "group"),
    [
        (["-q", "q"], b"", "q", None),
        (["--question", "q", "-g", "a", "b", "-v"], b"", "q", ("a", "b")),
        (["q", "-g", "a", "-g", "b", "-s", "begun", "-p", "react"], b"", "q", ("a", "b")),
        (["-"], b"pip\xc3\xa9d\n", "pip\xe9d", None),
        (["-q", "-"], b"piped", "piped", None),
        ([], b"piped\n", "piped", None),
    ],
)
async def test_ways_to_ask(
    it: OpenedAgent, arguments: list[str], stdin: bytes, question: str, group: tuple[str, ...] | None
) -> None:
    done = await ran(AGENT, *arguments, data=stdin, TOKENGRID_URL=it.gateway.url)
    assert (done.code, done.out) == (0, "It is 5.\n")
    (asked,) = it.agent.requests
    assert (asked.question, asked.group) == (question, group)
    assert (asked.state, asked.pattern) == (("begun", "react") if "-s" in arguments else (None, None))


@pytest.mark.parametrize(
    ("arguments", "stdin", "sentence"),
    [
        (["two", "words"], b"", "put it into quotes"),
        (["q", "-q", "q"], b"", "given twice"),
        ([""], b"", "QUESTION is empty"),
        ([], b"\n", "QUESTION is empty"),
        (["-"], b"\xff", "not UTF-8"),
    ],
)
async def test_wrong_usage(arguments: list[str], stdin: bytes, sentence: str) -> None:
    done = await ran(AGENT, *arguments, data=stdin)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err


async def test_a_terminal_without_a_question_is_wrong_usage() -> None:
    async with terminal_pair() as (_, theirs), started(AGENT, stdin=theirs) as process:
        done = await ended(process)
    assert done.code == 2
    assert "QUESTION is missing" in done.err


@pytest.mark.parametrize("streaming", [(), ("--no-streaming",)])
async def test_an_error_is_one_sentence(it: OpenedAgent, streaming: tuple[str, ...]) -> None:
    for arguments, sentence in (
        ((" ", "-u", it.gateway.url), "question is missing"),
        (("q", "-f", "nope", "-u", it.gateway.url), "no flow has this id; there are: default"),
        (("q", "-u", "http://127.0.0.1:9"), "no gateway answers at"),
    ):
        done = await ran(AGENT, *arguments, *streaming)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(f"{AGENT}: ")
        assert sentence in done.err
        assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("said", "steps"),
    [(0, ""), (1, "I must \n"), (4, STEPS.partition(".0")[0] + "\n"), (7, f"{STEPS}It is \n")],
)
async def test_an_error_in_mid_dialog_keeps_what_came(said: int, steps: str) -> None:
    """A pipe gets nothing that may not be the answer. The provider asks for more time than -t leaves for a retry."""
    error: TgError = RateLimited("the provider is busy", retry_after=90.0)
    async with open_agent(ScriptedAgent(DIALOG[:said], error)) as it:
        done = await ran(AGENT, "q", "-v", "-t", "60", "-u", it.gateway.url)
        assert (done.code, done.out) == (1, "")
        assert done.err == f"{steps}{AGENT}: the provider is busy (try again in 90 s)\n"
        done = await ran(AGENT, "q", "--json", "-t", "60", "-u", it.gateway.url)
        assert (done.code, done.err) == (1, f"{AGENT}: the provider is busy (try again in 90 s)\n")
        last = json.loads(done.out.splitlines()[-1])
        assert (last["chunk_type"], last["end_of_dialog"]) == ("error", True)
        assert last["error"] == {"type": "rate-limited", "message": "the provider is busy", "retry_after": 90.0}


@pytest.mark.parametrize("said", [0, 4])
@pytest.mark.parametrize("options", [(), ("-v",), ("--no-streaming",), ("--json",)])
async def test_an_interrupt_stops_the_agent(it: OpenedAgent, said: int, options: tuple[str, ...]) -> None:
    it.agent.step = asyncio.Semaphore(said)
    async with started(AGENT, "q", *options, "-u", it.gateway.url) as process:
        await asyncio.wait_for(it.agent.started.wait(), 20)
        process.send_signal(signal.SIGINT)
        await within(10, it.agent.stopped.wait())
        done = await ended(process)
    assert done.code == 130
    assert "Traceback" not in done.err
    assert it.agent.said <= said


async def test_a_reader_that_leaves_stops_the_agent(it: OpenedAgent) -> None:
    """Also before there is anything to read."""
    it.agent.step = asyncio.Semaphore(7)
    ours, theirs = os.pipe()
    async with started(AGENT, "q", "-u", it.gateway.url, stdout=theirs) as process:
        os.close(theirs)
        await within(20, it.agent.started.wait())
        os.close(ours)
        await within(20, it.agent.stopped.wait())
        done = await ended(process)
    assert (done.code, done.err, it.agent.said) == (141, "", 7)


async def test_closed_stderr_is_no_failure(it: OpenedAgent) -> None:
    for redirection in ("2>&-", "2>/dev/full"):
        done = await ran("bash", "-c", f"{SCRIPTS / AGENT} q -v -u {it.gateway.url} {redirection}")
        assert (done.code, done.out) == (0, "It is 5.\n")


async def on_a_terminal(it: OpenedAgent, *arguments: str, **extra: str) -> str:
    """What a person sees who has both outputs on one terminal."""
    async with terminal_pair() as (ours, theirs):
        async with started(
            AGENT, *arguments, "-u", it.gateway.url, stdin=theirs, stdout=theirs, stderr=theirs, env=extra
        ) as process:
            assert await asyncio.wait_for(process.wait(), 20) == 0
        return os.read(ours, 65536).decode().replace("\r\n", "\n")


def dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m"


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m"


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9]m", "", text)


async def test_a_terminal_shows_steps_and_answer(it: OpenedAgent) -> None:
    seen = await on_a_terminal(it, "q", TERM="xterm")
    assert plain(seen) == f"{STEPS}\nIt is 5.\n"
    assert dim("Done.") in seen
    assert bold('→ sum {"numbers":[2,3],"note":"n"}') in seen
    assert seen.endswith("\n\nIt is 5.\n")


@pytest.mark.parametrize("extra", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
async def test_a_terminal_without_colours(it: OpenedAgent, extra: dict[str, str]) -> None:
    assert await on_a_terminal(it, "q", **extra) == f"{STEPS}\nIt is 5.\n"


async def test_long_observations_are_short_unless_all_is_asked_for() -> None:
    lines = "".join(f"line {number}\n" for number in range(100))
    dialog = (
        AgentResponse("observation", lines, message_id="a"),
        AgentResponse("observation", "last", True, message_id="a"),
        AgentResponse("observation", "y" * 500, True, message_id="b"),
        DIALOG[-1],
    )
    async with open_agent(ScriptedAgent(dialog)) as it:
        short = plain(await on_a_terminal(it, "q", TERM="xterm"))
        whole = plain(await on_a_terminal(it, "q", "-v", TERM="xterm"))
    left = len(lines + "last") - len("line 0\n" * 6)
    assert short.startswith("  line 0\n  line 1\n  line 2\n  line 3\n  line 4\n  line 5 … ")
    assert left - 5 < int(re.findall(r"… ([\d,]+) more", short)[0].replace(",", "")) <= left
    assert f"  {'y' * 400} … 100 more characters (-v shows all)\n" in short
    assert whole.startswith("  line 0\n  line 1\n")
    assert f"  line 99\n  last\n  {'y' * 500}\n" in whole


async def test_line_ends_of_an_observation_wait_for_what_follows() -> None:
    def piece(text: str, end: bool = False) -> AgentResponse:
        return AgentResponse("observation", text, end, message_id="o")

    dialog = (piece("a\n"), piece("\n"), piece("b\n"), piece("\n", True), *DIALOG[-4:])
    async with open_agent(ScriptedAgent(dialog)) as it:
        done = await ran(AGENT, "q", "-v", "-u", it.gateway.url)
    assert (done.out, done.err) == ("It is 5.\n", "  a\n  \n  b\nDone.\n")


async def test_a_terminal_gets_no_control_characters() -> None:
    dialog = (
        AgentResponse("thought", "a\x1b[2Jb\x07", True, message_id="t"),
        AgentResponse("action", "x", True, message_id="a", tool="x\x1b[1m", arguments='"\x9b"'),
        AgentResponse("answer", "\x1b]0;title\x07c", True, True, message_id="f"),
    )
    async with open_agent(ScriptedAgent(dialog)) as it:
        assert await on_a_terminal(it, "q", TERM="dumb") == "a[2Jb\n→ x[1m \n\n]0;titlec\n"


@pytest.mark.parametrize("said", ["It is 4.", "x" * 3_000])
async def test_an_answer_that_is_withdrawn_has_a_line_of_its_own(said: str) -> None:
    withdrawn = (AgentResponse("answer", said, message_id="1"), AgentResponse("answer", "", True, message_id="1"))
    async with open_agent(ScriptedAgent((*withdrawn, *DIALOG[-3:]))) as it:
        done = await ran(AGENT, "q", "-v", "-u", it.gateway.url)
        assert (done.out, done.err) == ("It is 5.\n", f"{said}\n")
        assert await on_a_terminal(it, "q", TERM="dumb") == f"{said}\n(this was not the answer yet)\nIt is 5.\n"
        done = await ran(AGENT, "q", "--no-streaming", "-u", it.gateway.url)
        assert (done.out, done.err) == ("It is 5.\n", "")


async def test_a_terminal_shows_an_answer_at_once(it: OpenedAgent) -> None:
    it.agent.step = asyncio.Semaphore(7)
    async with (
        terminal_pair() as (ours, theirs),
        started(AGENT, "q", "-u", it.gateway.url, stdin=theirs, stdout=theirs, stderr=theirs) as process,
    ):
        seen = b""
        while not seen.endswith(b"It is "):
            seen += await asyncio.to_thread(os.read, ours, 65536)
        assert it.agent.said == 7
        it.agent.step.release()
        it.agent.step.release()
        assert await asyncio.wait_for(process.wait(), 60) == 0


@pytest.mark.parametrize("option", ["-v", "--no-streaming", "--json"])
async def test_an_answer_that_is_cut_is_told(option: str) -> None:
    cut = msgspec.structs.replace(DIALOG[-1], finish_reason="length")
    async with open_agent(ScriptedAgent((*DIALOG[-3:-1], cut))) as it:
        done = await ran(AGENT, "q", option, "-u", it.gateway.url)
    assert (done.code, done.err) == (0, "the answer is cut: the model has reached its limit of tokens\n")
    if option == "--json":
        assert json.loads(done.out.splitlines()[-1])["finish_reason"] == "length"
    else:
        assert done.out == "It is 5.\n"


async def test_sub_agents_side_by_side_are_shown_one_after_the_other() -> None:
    def piece(name: str, content: str, *, end: bool = False, kind: str = "thought") -> AgentResponse:
        return AgentResponse(kind, content, end, message_id=f"{name}/{kind}", path=("team", name))  # type: ignore[arg-type]

    dialog = (
        piece("a", "I "),
        piece("b", "You "),
        piece("a", "am a.", end=True),
        piece("b", "are b.", end=True),
        piece("b", "B", end=True, kind="answer"),
        DIALOG[-1],
    )
    async with open_agent(ScriptedAgent(dialog)) as it:
        done = await ran(AGENT, "q", "-v", "-u", it.gateway.url)
    assert done.out == ""
    assert done.err == "team: a: I am a.\nteam: b: You are b.\nteam: b: B\n"
