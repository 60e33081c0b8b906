"""The commands as processes, against a gateway that really listens."""

import asyncio
import fcntl
import json
import os
import re
import signal
import sys
import termios
from array import array

import pytest

from tests.fakes.gateway_wire import WELL, bytes_of, gateway_wire, in_turn, response
from tests.fakes.scripted_llm import ScriptedLlm
from tests.fakes.turns_llm import TurnsLlm
from tests.flow.command import SCRIPTS, Ended, ended, out_of, ran, started, terminal_pair
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.test_tg_client import LOCKED, TOKEN
from tests.until import until
from tests.within import within
from tg_schema.errors import RateLimited

LLM = "tg-invoke-llm"
PROMPT = "tg-invoke-prompt"
AGENT = "tg-invoke-agent"
ENDS = {LLM: {"end_of_stream"}, PROMPT: {"end_of_stream"}, AGENT: {"end_of_message", "end_of_dialog"}}
"""What is true in the last record of a command's `--json`."""


async def test_it_streams_and_flushes_each_chunk(opened: Opened) -> None:
    opened.llm.step = asyncio.Semaphore(0)
    async with started(LLM, "be brief", "3", "-u", opened.gateway.url) as process:
        for number in range(3):
            opened.llm.step.release()
            assert await asyncio.wait_for(out_of(process).readexactly(2), 20) == f"{number} ".encode()
        done = await ended(process)
    assert (done.code, done.out, done.err) == (0, "\n", "")
    assert (opened.llm.requests[0].system, opened.llm.requests[0].streaming) == ("be brief", True)


async def test_no_streaming(opened: Opened) -> None:
    done = await ran(LLM, "", "3", "--no-streaming", "-u", opened.gateway.url)
    assert (done.code, done.out, done.err) == (0, "0 1 2 \n", "")
    assert not opened.llm.requests[0].streaming


@pytest.mark.parametrize(
    ("arguments", "stdin", "system"),
    [
        (["sys", "-"], b"3\n", "sys"),
        (["sys"], b"3", "sys"),
        (["3"], b"", ""),
        ([], b"3\n", ""),
        (["-", "3"], "Sei kürz\n".encode(), "Sei kürz"),
    ],
)
async def test_a_pipe(opened: Opened, arguments: list[str], stdin: bytes, system: str) -> None:
    done = await ran(LLM, *arguments, data=stdin, TOKENGRID_URL=opened.gateway.url)
    assert (done.code, done.out, done.err) == (0, "0 1 2 \n", "")
    assert (opened.llm.requests[0].system, opened.llm.requests[0].prompt) == (system, "3")


async def test_one_argument_on_a_terminal_is_the_prompt(opened: Opened) -> None:
    async with terminal_pair() as (_, theirs), started(LLM, "3", "-u", opened.gateway.url, stdin=theirs) as process:
        assert await ended(process) == Ended(0, "0 1 2 \n", "")
    assert (opened.llm.requests[0].system, opened.llm.requests[0].prompt) == ("", "3")


async def test_json_lines(opened: Opened) -> None:
    done = await ran(LLM, "", "3", "--json", "-u", opened.gateway.url)
    records = [json.loads(line) for line in done.out.splitlines()]
    assert "".join(record["response"] for record in records) == "0 1 2 "
    assert [record["end_of_stream"] for record in records][-1] is True
    assert (records[-1]["in_token"], records[-1]["out_token"]) == (7, 3)
    done = await ran(LLM, "", "3", "--json", "--no-streaming", "-u", opened.gateway.url)
    assert json.loads(done.out)["response"] == "0 1 2 "


async def test_usage_goes_to_stderr(opened: Opened) -> None:
    done = await ran(LLM, "", "3", "--show-usage", "-u", opened.gateway.url)
    assert (done.out, done.err) == ("0 1 2 \n", "Input tokens: 7  Output tokens: 3  Model: counting\n")


async def test_prompts(opened: Opened) -> None:
    url = opened.gateway.url
    done = await ran(PROMPT, "text", "a=b=c", "n:=[1, null]", "p=-", "-u", url, data=b"piped\n")
    assert (done.code, done.out, done.err) == (0, 'a="b=c" n=[1,null] p="piped" \n', "")
    exact = f"9007199254740993 {10**400}"
    done = await ran(PROMPT, "text", *(f"n{i}:={number}" for i, number in enumerate(exact.split())), "-u", url)
    assert done.out == "n0={} n1={} \n".format(*exact.split())
    done = await ran(PROMPT, "object", "a=1", "-u", url)
    assert json.loads(done.out) == {"a": '"1"'}
    done = await ran(PROMPT, "text", "a=1", "--json", "--no-streaming", "--show-usage", "-u", url)
    assert json.loads(done.out)["text"] == 'a="1" '
    assert done.err == "Input tokens: 2  Output tokens: 1  Model: echo\n"


@pytest.mark.parametrize(
    ("name", "arguments", "stdin", "sentence"),
    [
        (LLM, ["-", "-"], b"x", "only one of SYSTEM and PROMPT"),
        (LLM, ["s", ""], b"", "PROMPT is empty"),
        (LLM, ["s"], b"\n", "PROMPT is empty"),
        (LLM, ["s", "-"], b"\xff", "standard input is not UTF-8 text"),
        (LLM, ["s", "p", "more"], b"", "unexpected extra argument"),
        (LLM, ["s", "p", "-t", "0"], b"", "-t"),
        (PROMPT, [], b"", "TEMPLATE_ID"),
        (PROMPT, ["t", "novalue"], b"", "write NAME=TEXT or NAME:=JSON"),
        (PROMPT, ["t", "=x"], b"", "write NAME=TEXT or NAME:=JSON"),
        (PROMPT, ["t", "a=1", "a=2"], b"", "the variable a is given twice"),
        (PROMPT, ["t", "a:=nope"], b"", "the value of a is not JSON"),
        (PROMPT, ["t", "a=-", "b=-"], b"", "only one variable"),
        (PROMPT, ["t", "a:=[-1e999]"], b"", "the value of a has the number -1e999, which is too large"),
        (PROMPT, ["t", f"a:={'9' * 5000}"], b"", "the value of a has a number of 5000 digits; at most 4300"),
        (PROMPT, ["t", 'a:=[{"b":1,"b":2}]'], b"", "the value of a has an object with the same name twice"),
        (LLM, ["s", "p", "--temperature", "nan"], b"", "it must be a finite number"),
    ],
)
async def test_wrong_usage(name: str, arguments: list[str], stdin: bytes, sentence: str) -> None:
    done = await ran(name, *arguments, data=stdin)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        (LLM, ["", "3", "-f", "nope"], "no flow has this id; there are: default"),
        (LLM, ["s", "\udcff"], "not Unicode"),
        (LLM, ["s", "1", "-f", ""], "the flow's id is not valid"),
        (LLM, ["s", "3", "--no-streaming", "-f", "nope"], "no flow has this id"),
        (PROMPT, ["nope"], "no template has this id; there are: object, text"),
    ],
)
async def test_an_error_is_one_sentence(opened: Opened, name: str, arguments: list[str], sentence: str) -> None:
    done = await ran(name, *arguments, "-u", opened.gateway.url)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"{name}: ")
    assert sentence in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ((LLM, "", "3", "-f", "nope"), "not-found"),
        ((LLM, "", "\udcff"), "bad-request"),
        ((LLM, "", "3", "-u", "http://127.0.0.1:9"), "unavailable"),
        ((LLM, "", "1", "--no-streaming", "-f", "nope"), "not-found"),
        ((PROMPT, "nope"), "not-found"),
        ((AGENT, " "), "not-found"),
        (("tg-models", "-u", "http://127.0.0.1:9"), "unavailable"),
    ],
)
async def test_json_ends_with_the_error(opened: Opened, arguments: tuple[str, ...], kind: str) -> None:
    done = await ran(*arguments, "--json", TOKENGRID_URL=opened.gateway.url)
    error = json.loads(done.out)["error"]
    assert (done.code, error["type"]) == (1, kind)
    assert done.err == f"{arguments[0]}: {error['message']}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        (LLM, "s", "p", "more"),
        (LLM, "s", ""),
        (LLM, "--tokem"),
        (LLM, "s", "p", "--schema", "nowhere"),
        (PROMPT,),
        (AGENT, "q", "-t", "0"),
        ("tg-models", "more"),
    ],
)
async def test_json_ends_with_wrong_usage(arguments: tuple[str, ...]) -> None:
    done = await ran(*arguments, "--json")
    last = json.loads(done.out)
    assert (done.code, last["error"]["type"]) == (2, "bad-request")
    assert f"Error: {last['error']['message']}\n" in done.err
    assert "--token'" not in done.out
    assert {key for key, value in last.items() if value is True} >= ENDS.get(arguments[0], set())


@pytest.mark.parametrize("stdout", [">&-", ">/dev/full"])
async def test_an_error_that_json_cannot_tell_is_told_on_stderr(stdout: str) -> None:
    done = await ran("bash", "-c", f'exec "$@" --json {stdout}', "bash", str(SCRIPTS / LLM), "s", "p", "more")
    assert done.code == 2
    assert "unexpected extra argument" in done.err


@pytest.mark.parametrize("name", [LLM, AGENT])
async def test_json_ends_with_an_interrupt(opened: Opened, name: str) -> None:
    theirs, ours = os.pipe()
    os.write(ours, b"half a prom")
    async with started(name, "--json", "-u", opened.gateway.url, stdin=theirs) as process:
        os.close(theirs)
        await until(lambda: waiting(ours) == 0)
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    os.close(ours)
    last = json.loads(done.out)
    assert (done.code, last["error"]["type"]) == (130, "cancelled")
    assert last[min(ENDS[name])] is True


async def test_json_ends_with_an_interrupt_in_mid_stream(opened: Opened) -> None:
    opened.llm.step = asyncio.Semaphore(3)
    async with started(LLM, "", "1000", "--json", "-u", opened.gateway.url) as process:
        await asyncio.wait_for(opened.llm.started.wait(), 20)
        await out_of(process).readline()
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    last = json.loads(done.out.splitlines()[-1])
    assert (done.code, last["error"]["type"], last["end_of_stream"]) == (130, "cancelled", True)


async def test_json_ends_with_the_error_in_mid_stream() -> None:
    busy = RateLimited("the provider is busy", retry_after=3.0)
    async with open_gateway(instead=TurnsLlm(["so"] * 3 + [busy])) as opened:
        done = await ran(LLM, "", "x", "--json", "-u", opened.gateway.url)
    *records, last = map(json.loads, done.out.splitlines())
    assert "".join(record["response"] for record in records) == "sososo"
    assert (done.code, last["end_of_stream"]) == (1, True)
    assert last["error"] == {"type": "rate-limited", "message": "the provider is busy", "retry_after": 3.0}


async def test_an_error_in_mid_stream_keeps_what_came(opened: Opened) -> None:
    opened.llm.step = asyncio.Semaphore(0)
    async with started(LLM, "", "3", "-t", "2", "-u", opened.gateway.url) as process:
        await opened.llm.started.wait()
        opened.llm.step.release()
        done = await ended(process)
    assert (done.code, done.out) == (1, "0 \n")
    assert done.err == f"{LLM}: nothing more of the answer came within 2 s; a longer timeout (-t) waits longer\n"


FULL = b'{"error":{"type":"rate-limited","message":"full","retry_after":%g}}'


@pytest.mark.parametrize(("name", "arguments"), [(LLM, ("s", "p")), (PROMPT, ("t",))])
async def test_a_command_that_is_refused_waits_and_tells_a_terminal(name: str, arguments: tuple[str, ...]) -> None:
    refused = response("429 Slow", FULL % 0.01)
    async with gateway_wire(in_turn(refused, refused, WELL, refused, WELL)) as wire, terminal_pair() as (ours, theirs):
        async with started(name, *arguments, "-u", wire.url, stderr=theirs) as process:
            done = await ended(process)
        assert (done.code, done.out) == (0, "well\n")
        told = os.read(ours, 1000).decode()
        assert re.fullmatch(r"(asking again in \d\.\d s: full\r\n){2}", told)
        assert (await ran(name, *arguments, "-u", wire.url)).err == ""
    assert len(wire.requests) == 5


async def test_an_interrupt_ends_the_wait_of_a_refused_command() -> None:
    async with (
        terminal_pair() as (ours, theirs),
        gateway_wire(in_turn(response("429 Slow", FULL % 60))) as wire,
        started(LLM, "s", "p", "-u", wire.url, stderr=theirs) as process,
    ):
        assert (await asyncio.to_thread(os.read, ours, 1000)).startswith(b"asking again in 60.")
        process.send_signal(signal.SIGINT)
        assert (await ended(process)).code == 130


async def test_a_named_gateway_that_is_not_there() -> None:
    for done in (
        await ran(LLM, "s", "p", "-u", "http://127.0.0.1:9"),
        await ran(LLM, "s", "p", TOKENGRID_URL="http://127.0.0.1:9"),
    ):
        assert (done.code, done.out) == (1, "")
        assert done.err == (
            f"{LLM}: no gateway answers at http://127.0.0.1:9/: start one with tg-serve, or give the URL of one\n"
        )


async def test_the_token_comes_from_the_environment() -> None:
    async with open_gateway(LOCKED) as opened:
        url = opened.gateway.url
        assert (await ran(LLM, "", "1", "-u", url, TOKENGRID_TOKEN=TOKEN)).out == "0 \n"
        done = await ran(LLM, "", "1", "-u", url, TOKENGRID_TOKEN="canary-123")
        assert done.code == 1
        assert "canary" not in done.err


async def test_trustgraphs_variables_and_workspace_are_taken() -> None:
    async with open_gateway(LOCKED) as opened:
        theirs = {"TRUSTGRAPH_URL": opened.gateway.url, "TRUSTGRAPH_TOKEN": TOKEN}
        assert (await ran(LLM, "", "1", "-w", "default", env=theirs)).out == "0 \n"
        assert (await ran(LLM, "", "1", "--workspace=mine", env=theirs)).out == "0 \n"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *((command, ("--token", "tg_canary")) for command in (LLM, PROMPT, AGENT, "tg-chat", "tg-models", "tg-lmtp")),
        (LLM, ("-t", "tg_canary")),
        (LLM, ("--token=tg_canary",)),
    ],
)
async def test_a_token_on_the_command_line_gets_a_sentence(command: str, option: tuple[str, ...]) -> None:
    done = await ran(command, "x", "y=1", *option)
    assert (done.code, done.out) == (2, "")
    assert "-t is the timeout, in seconds" in done.err
    assert "put it into TOKENGRID_TOKEN, or leave it in TRUSTGRAPH_TOKEN" in done.err
    assert "canary" not in done.err


async def test_a_timeout_is_a_finite_number_of_seconds(opened: Opened) -> None:
    assert (await ran(LLM, "", "1", "-t", "30", "-u", opened.gateway.url)).out == "0 \n"
    for wrong in ("nan", "inf", "0", "-1"):
        done = await ran(LLM, "", "1", "-t", wrong, "-u", opened.gateway.url)
        assert done.code == 2
        assert "Invalid value for '-t' / '--timeout'" in done.err


async def test_an_answer_that_is_cut_says_so() -> None:
    async with open_gateway(instead=ScriptedLlm("a", finish_reason="length")) as opened:
        done = await ran(LLM, "", "x", "-u", opened.gateway.url)
        assert (done.code, done.out) == (0, "a\n")
        assert "the answer is cut" in done.err


@pytest.mark.parametrize("read", [0, 3])
@pytest.mark.parametrize("streaming", [True, False])
async def test_an_interrupt_stops_the_model(opened: Opened, read: int, streaming: bool) -> None:
    opened.llm.step = asyncio.Semaphore(read)
    options = [] if streaming else ["--no-streaming"]
    async with started(LLM, "", "1000", *options, "-u", opened.gateway.url) as process:
        await asyncio.wait_for(opened.llm.started.wait(), 20)
        shown = await out_of(process).readexactly(2 * read) if streaming else b""
        process.send_signal(signal.SIGINT)
        await within(10, opened.llm.stopped.wait())
        done = await ended(process)
    assert (done.code, done.err) == (130, "")
    assert shown == b"0 1 2 "[: len(shown)]
    assert opened.llm.generated == read


async def test_an_interrupt_while_stdin_is_read() -> None:
    theirs, ours = os.pipe()
    os.write(ours, b"half a prom")
    async with started(LLM, "system", "-", "-u", "http://127.0.0.1:9", stdin=theirs) as process:
        os.close(theirs)
        await until(lambda: waiting(ours) == 0)
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    os.close(ours)
    assert done.code == 130
    assert "Traceback" not in done.err


def waiting(pipe: int) -> int:
    """Bytes in a pipe that nobody has read."""
    buffer = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, buffer)
    return buffer[0]


async def test_a_reader_that_leaves_stops_the_model(opened: Opened) -> None:
    opened.llm.step = asyncio.Semaphore(0)
    command = f"{SCRIPTS / LLM} '' 1000 -u {opened.gateway.url} | head -c 2; echo ${{PIPESTATUS[0]}}"
    async with started("bash", "-c", command) as shell:
        await asyncio.wait_for(opened.llm.started.wait(), 20)
        opened.llm.step.release()
        assert await out_of(shell).readexactly(2) == b"0 "
        while not opened.llm.stopped.is_set():
            opened.llm.step.release()
            await asyncio.sleep(0.01)
        done = await ended(shell)
    assert (done.out, done.err) == ("141\n", "")
    assert opened.llm.generated < 1000


@pytest.mark.parametrize("option", ["--json", "--no-streaming"])
async def test_a_reader_that_leaves_while_nothing_is_written_stops_the_model(opened: Opened, option: str) -> None:
    opened.llm.step = asyncio.Semaphore(0)
    ours, theirs = os.pipe()
    async with started(LLM, "", "1000", option, "-u", opened.gateway.url, stdout=theirs) as process:
        os.close(theirs)
        await within(20, opened.llm.started.wait())
        os.close(ours)
        await within(20, opened.llm.stopped.wait())
        done = await ended(process)
    assert (done.code, done.err, opened.llm.generated) == (141, "", 0)


USAGE = "Input tokens: 7  Output tokens: 3  Model: counting\n"


@pytest.mark.parametrize(
    ("redirection", "code", "err"),
    [
        (">&-", 141, ""),
        (">/dev/null", 0, USAGE),
        ("2>&- >/dev/null", 0, ""),
        ("2>/dev/full >/dev/null", 0, ""),
        (">/dev/full", 1, f"{LLM}: the output cannot be written: No space left on device\n"),
    ],
)
async def test_streams_that_are_closed_or_full(opened: Opened, redirection: str, code: int, err: str) -> None:
    command = f"{SCRIPTS / LLM} '' 3 --show-usage -u {opened.gateway.url} {redirection}"
    done = await ran("bash", "-c", command)
    assert (done.code, done.out, done.err) == (code, "", err)


@pytest.mark.parametrize("option", ["--help", "--version"])
async def test_a_full_disk_for_what_click_writes(option: str) -> None:
    done = await ran("bash", "-c", f"{SCRIPTS / LLM} {option} > /dev/full")
    assert (done.code, done.err) == (1, f"{LLM}: the output cannot be written: No space left on device\n")


LOGS = """
import click, sys
from contextlib import suppress
from tg_cli.entry import run

@click.command()
def log():
    with suppress(OSError):
        print("a line", file=sys.stderr)

run(log)
"""


async def test_a_log_that_a_full_disk_has_not_taken_is_no_failure() -> None:
    assert (await ran("bash", "-c", 'exec "$@" 2>/dev/full', "bash", sys.executable, "-c", LOGS)).code == 0


@pytest.mark.parametrize("options", [(), ("--json",)])
async def test_an_interrupt_while_nobody_reads_the_output(options: tuple[str, ...]) -> None:
    ours, theirs = os.pipe()
    async with (
        open_gateway(instead=ScriptedLlm(*["x" * 10_000] * 100)) as opened,
        started(LLM, "", "go", *options, "-u", opened.gateway.url, stdout=theirs) as process,
    ):
        os.close(theirs)
        await until(lambda: waiting(ours) > 60_000)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 130
    os.close(ours)


async def test_a_terminal_gets_no_control_characters() -> None:
    async with (
        terminal_pair() as (ours, theirs),
        open_gateway(instead=ScriptedLlm("a\x1b[2J", "\x07\x9bb", "\tc\n", "d")) as opened,
        started(LLM, "", "go", "-u", opened.gateway.url, stdin=theirs, stdout=theirs) as process,
    ):
        assert (await ended(process)).code == 0
        assert os.read(ours, 1000).decode() == "a[2Jb\tc\r\nd\r\n"


async def test_a_terminal_gets_no_control_characters_in_json_and_in_errors() -> None:
    odd = response("400 No", '{"error":{"type":"bad-request","message":"no\\u001b[2J\x9b"}}'.encode())
    async with (
        terminal_pair() as (ours, theirs),
        open_gateway(instead=ScriptedLlm("\x1b[2J\x9b\x7fb")) as opened,
        gateway_wire(bytes_of(odd)) as wire,
    ):
        for url in (opened.gateway.url, wire.url):
            async with started(
                LLM, "", "go", "--json", "-u", url, stdin=theirs, stdout=theirs, stderr=theirs
            ) as process:
                await ended(process)
        first, *_, last = os.read(ours, 10_000).decode().splitlines()
    assert "\\u001b[2J\\u009b\\u007fb" in first
    assert json.loads(first)["response"] == "\x1b[2J\x9b\x7fb"
    assert last == f"{LLM}: no[2J"
