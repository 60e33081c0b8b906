"""tg-chat: on a terminal, where a user types and sees, and through a pipe."""

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.gateway_wire import WELL, gateway_wire, in_turn, response
from tests.fakes.recorded_llm import RecordedLlm
from tests.fakes.scripted_llm import ScriptedLlm
from tests.fakes.turns_llm import TurnsLlm
from tests.flow.command import ended, out_of, ran, started
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.terminal import ALT_ENTER, END, ENTER, INTERRUPT, UP, Terminal, on_terminal
from tests.flow.test_cli_models import PNG
from tests.within import within
from tg_cli.conversation import Conversation
from tg_schema import ImagePart, Message, Sampling, TextCompletionResponse
from tg_schema.conversation import ReasoningPart, TextPart
from tg_schema.errors import PeerError

CHAT = "tg-chat"


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    async with open_gateway(listed=True) as opened:
        yield opened


@pytest.fixture
async def terminal(opened: Opened) -> AsyncIterator[Terminal]:
    async with on_terminal(CHAT, "-u", opened.gateway.url) as terminal:
        await terminal.until_asked(1)
        yield terminal


async def leave(terminal: Terminal) -> int:
    terminal.type(END)
    return await asyncio.wait_for(terminal.process.wait(), 10)


async def test_a_locale_that_cannot_draw_gets_plain_text(opened: Opened) -> None:
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    async with on_terminal(CHAT, "-u", opened.gateway.url, **locale) as terminal:
        await terminal.until_asked(1)
        assert "> 3\n0 1 2\n>" in await terminal.enter_until_asked(f"3{ENTER}", 2)


async def test_a_conversation_on_a_terminal(opened: Opened, terminal: Terminal) -> None:
    assert terminal.text.startswith("counting; /help lists the commands, Ctrl-D ends\n>")
    assert "> 3\n0 1 2\n>" in await terminal.enter_until_asked(f"3{ENTER}", 2)
    assert "> 2\n0 1\n>" in await terminal.enter_until_asked(f"2{ENTER}", 3)
    assert await leave(terminal) == 0
    second = opened.llm.requests[1]
    assert (second.prompt, second.streaming) == ("2", True)
    assert second.messages == (Message("user", "3"), Message("assistant", "0 1 2 "))


async def test_an_interrupt_stops_the_model_and_keeps_the_conversation(opened: Opened, terminal: Terminal) -> None:
    opened.llm.step = asyncio.Semaphore(0)
    await terminal.enter(f"1000{ENTER}", "waiting")
    for _ in range(3):
        opened.llm.step.release()
    assert "waiting" not in await terminal.until("0 1 2")
    terminal.type(INTERRUPT)
    await within(10, opened.llm.stopped.wait())
    assert opened.llm.generated == 3
    await terminal.until_asked(2)
    opened.llm.step = None
    await terminal.enter(f"2{ENTER}", "> 2\n0 1\n")
    assert opened.llm.requests[1].messages == (Message("user", "1000"), Message("assistant", "0 1 2 "))
    await terminal.until_asked(3)
    assert await leave(terminal) == 0


@pytest.mark.parametrize("keys", [INTERRUPT, f"typed{ENTER}ahead{ENTER}{INTERRUPT}"])
async def test_an_answer_that_is_interrupted_is_shown_once(keys: str) -> None:
    """A terminal shows what is typed; that must not move what is drawn."""
    lines = [" ".join(["word"] * 20), "- one\n- two"]
    async with (
        open_gateway(instead=TurnsLlm([lines[0], "\n\n", lines[1], asyncio.Event()], ["well"])) as opened,
        on_terminal(CHAT, "-u", opened.gateway.url) as terminal,
    ):
        await terminal.until_asked(1)
        await terminal.enter(f"go{ENTER}", "two")
        shown = await terminal.enter_until_asked(keys, 2)
        assert shown.endswith(f"> go\n{lines[0]}\n\n • one\n • two\n>")
        await terminal.enter(f"again{ENTER}", "> again\nwell\n")


async def test_an_interrupt_before_the_first_token_leaves_no_turn(opened: Opened, terminal: Terminal) -> None:
    opened.llm.step = asyncio.Semaphore(0)
    await terminal.enter(f"1000{ENTER}", "waiting")
    await asyncio.wait_for(opened.llm.started.wait(), 10)
    terminal.type(INTERRUPT)
    await within(10, opened.llm.stopped.wait())
    assert opened.llm.generated == 0
    assert "waiting" not in await terminal.until_asked(2)
    opened.llm.step = None
    await terminal.enter(f"1{ENTER}", "> 1\n0\n")
    assert opened.llm.requests[1].messages == ()


async def test_an_interrupt_while_nothing_runs_empties_the_line(terminal: Terminal) -> None:
    await terminal.enter("17", "> 17")
    await terminal.enter_until_asked(INTERRUPT, 2)
    await terminal.enter(f"1{ENTER}", "> 1\n0\n")


async def test_an_error_keeps_the_chat(terminal: Terminal, opened: Opened) -> None:
    await terminal.enter(f"/model{ENTER}", "  counting\n")
    await terminal.enter(f"/model nope{ENTER}", "there is no model nope; there are: counting")
    await terminal.enter(f"/what{ENTER}", "there is no command /what; /help lists them")
    await terminal.enter(f"/model counting{ENTER}", "asking counting")
    await terminal.until_asked(5)
    await terminal.enter(f"1{ENTER}", "> 1\n0\n")
    assert opened.llm.requests[0].model == "counting"


async def test_several_lines_and_the_messages_before(tmp_path: Path) -> None:
    model = ScriptedLlm("yes")
    async with (
        open_gateway(instead=model) as opened,
        on_terminal(CHAT, "-u", opened.gateway.url, "-s", "be brief") as terminal,
    ):
        await terminal.until_asked(1)
        assert "> one\n. two\n. three\nyes" in await terminal.enter_until_asked(
            f"one\\{ENTER}two{ALT_ENTER}three{ENTER}", 2
        )
        await terminal.enter_until_asked(f"{UP}!{ENTER}", 3)
        await terminal.enter_until_asked(f"//slash{ENTER}", 4)
        await terminal.enter(f"/system in verse{ENTER}", "system: in verse")
        await terminal.enter(f"/save {tmp_path}/chat.json{ENTER}", "saved 6 turns")
        terminal.type(f"/quit{ENTER}")
        assert await asyncio.wait_for(terminal.process.wait(), 10) == 0
    assert [request.prompt for request in model.requests] == ["one\ntwo\nthree", "one\ntwo\nthree!", "/slash"]
    assert model.requests[0].system == "be brief"
    saved = json.loads((tmp_path / "chat.json").read_text())
    assert saved[0] == {"role": "system", "content": "in verse"}
    assert saved[-1] == {"role": "assistant", "content": "yes"}


MARKDOWN = (
    "# Ti",
    "tle\n\nIt is **bo",
    "ld**.\n\n```python\nprint(1)\n\n",
    "print(2)\n```\n\n- one\n- t",
    "wo\n",
    "\x1b[2J",
)


async def test_markdown_is_laid_out(tmp_path: Path) -> None:
    pieces = asyncio.Event()
    model = TurnsLlm([*MARKDOWN[:3], pieces, *MARKDOWN[3:]])
    async with (
        open_gateway(instead=model) as opened,
        on_terminal(CHAT, "-u", opened.gateway.url) as terminal,
    ):
        await terminal.until_asked(1)
        shown = await terminal.enter(f"go{ENTER}", "It is bold.")
        assert "Title" in shown
        pieces.set()
        shown = await terminal.until_asked(2)
    assert "*" not in shown
    assert "`" not in shown
    assert shown.count("It is bold.") == shown.count("print(2)") == 1
    assert shown.endswith("It is bold.\n\n print(1)\n\n print(2)\n\n • one\n • two [2J\n>")
    assert b"\x1b[1m" in terminal.received


async def test_thinking_is_dim_and_signed_thinking_goes_on() -> None:
    records = (
        TextCompletionResponse(reasoning="Let me "),
        TextCompletionResponse(reasoning="see.", signature="fake:1"),
        TextCompletionResponse(response="Yes.", finish_reason="stop", end_of_stream=True),
    )
    model = RecordedLlm(*records)
    async with (
        open_gateway(instead=model) as opened,
        on_terminal(CHAT, "-u", opened.gateway.url) as terminal,
    ):
        await terminal.until_asked(1)
        assert "Let me see.\n\nYes.\n>" in await terminal.enter_until_asked(f"go{ENTER}", 2)
        await terminal.enter_until_asked(f"go on{ENTER}", 3)
    signed = (ReasoningPart("Let me see.", "fake:1"), TextPart("Yes."))
    assert model.requests[1].messages == (Message("user", "go"), Message("assistant", signed))


async def test_a_failure_in_mid_answer_keeps_what_came() -> None:
    model = TurnsLlm(["so ", "far", PeerError("the model broke")], ["well"])
    async with (
        open_gateway(instead=model) as opened,
        on_terminal(CHAT, "-u", opened.gateway.url) as terminal,
    ):
        await terminal.until_asked(1)
        assert "so far\nthe model broke\n>" in await terminal.enter_until_asked(f"go{ENTER}", 2)
        await terminal.enter(f"again{ENTER}", "well")
    assert model.requests[1].messages == (Message("user", "go"), Message("assistant", "so far"))


async def test_a_wait_is_told_above_the_spinner() -> None:
    models = response("200 OK", b'{"models":[]}', "Content-Type: application/json")
    refused = response("429 Slow", b'{"error":{"type":"rate-limited","message":"full","retry_after":0.2}}')
    async with (
        gateway_wire(in_turn(models, refused, refused, WELL)) as wire,
        on_terminal(CHAT, "-u", wire.url) as terminal,
    ):
        await terminal.until_asked(1)
        shown = await terminal.enter_until_asked(f"go{ENTER}", 2)
    assert re.search(r"> go\n(asking again in \d\.\d s: full\n){2}well\n>$", shown)


async def test_no_gateway_is_told_at_once() -> None:
    async with on_terminal(CHAT, "-u", "http://127.0.0.1:9") as terminal:
        assert await asyncio.wait_for(terminal.process.wait(), 20) == 1
        await terminal.until("tg-chat: no gateway answers at http://127.0.0.1:9/")


async def test_a_pipe_is_a_message_for_each_line(opened: Opened) -> None:
    done = await ran(CHAT, "-u", opened.gateway.url, data=b"2\n\n1\\\n\n3", TERM="xterm")
    assert (done.code, done.out, done.err) == (0, "0 1 \n0 \n0 1 2 \n", "")
    assert [request.prompt for request in opened.llm.requests] == ["2", "1\n", "3"]
    assert opened.llm.requests[2].messages[1] == Message("assistant", "0 1 ")


async def test_a_pipe_is_answered_while_it_is_open(opened: Opened) -> None:
    async with started(CHAT, "-u", opened.gateway.url) as process:
        assert process.stdin is not None
        for said in (b"2\n", b"1\n"):
            process.stdin.write(said)
            answer = await asyncio.wait_for(out_of(process).readline(), 20)
            assert answer == (b"0 1 \n" if said == b"2\n" else b"0 \n")
        assert (await ended(process)).code == 0


async def test_a_saved_conversation_goes_on(opened: Opened, tmp_path: Path) -> None:
    file, other = tmp_path / "chat.json", tmp_path / "other.json"
    other.write_text("mine")
    first = f"2\n/system be brief\n/save {file}\n/save {other}\n1\n"
    done = await ran(CHAT, "-u", opened.gateway.url, data=first.encode())
    assert (done.code, done.out) == (1, "0 1 \n")
    assert done.err.endswith(f"saved 2 turns to {file}\ntg-chat: {other} exists: choose another name\n")
    assert other.read_text() == "mine"
    options = ["--history", str(file), "--temperature", "0", "--max-tokens", "7", "-m", "counting"]
    done = await ran(CHAT, *options, "-u", opened.gateway.url, data=f"1\n/save {file}\n".encode())
    assert (done.code, done.out) == (0, "0 \n")
    last = opened.llm.requests[-1]
    assert last.messages == (Message("user", "2"), Message("assistant", "0 1 "))
    assert (last.system, last.model, last.sampling) == ("be brief", "counting", Sampling(0.0, max_tokens=7))
    assert len(json.loads(file.read_text())) == 5


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"/nope\n", "there is no command /nope; /help lists them"),
        (b"/save\n", "/save needs the name of a file"),
        (b"/image\n", "/image needs the name of a file"),
        (b"/image /nowhere/at/all\n", "/nowhere/at/all cannot be read: No such file or directory"),
        (b"/image /dev/null\n", "/dev/null is no image that models read: give a PNG, JPEG, GIF or WebP file"),
        (b"/save /nowhere/at/all\n", "/nowhere/at/all cannot be written: No such file or directory"),
        (b"/model nope\n", "there is no model nope; there are: counting"),
        (b"\xff\n", "standard input is not UTF-8 text"),
    ],
)
async def test_a_pipe_ends_at_the_first_error(opened: Opened, data: bytes, sentence: str) -> None:
    done = await ran(CHAT, "-u", opened.gateway.url, data=data + b"1\n")
    assert done.code in {1, 2}
    assert done.out == ""
    assert sentence in done.err


async def test_an_answer_without_text_is_told_and_not_kept() -> None:
    model = TurnsLlm([], ["well"])
    async with open_gateway(instead=model) as opened:
        done = await ran(CHAT, "-u", opened.gateway.url, data=b"go\nagain\n")
    assert (done.code, done.out, done.err) == (0, "well\n", "the model gave no answer\n")
    assert model.requests[1].messages == ()


async def test_images_go_with_the_next_message_and_clear_forgets_all(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(PNG)
    (tmp_path / "two").write_bytes(PNG)
    well = TextCompletionResponse(response="well", end_of_stream=True)
    model = RecordedLlm(well)
    lines = (f"/image {tmp_path}/one", f"/image {tmp_path}/two", "what?", "and?", "/clear", "new", " exit ", "never")
    async with open_gateway(instead=model) as opened:
        done = await ran(CHAT, "-u", opened.gateway.url, "-s", "brief", data="\n".join(lines).encode())
    assert (done.code, done.out) == (0, "well\n" * 3)
    told = [*(f"{tmp_path}/{name} goes with the next message" for name in ("one", "two")), "all messages are forgotten"]
    assert done.err.splitlines() == told
    image = ImagePart(data=b64encode(PNG).decode())
    shown = Message("user", (TextPart("what?"), image, image))
    assert [request.prompt or "" for request in model.requests] == ["", "and?", "new"]
    assert [request.messages for request in model.requests] == [(shown,), (shown, Message("assistant", "well")), ()]
    assert {request.system for request in model.requests} == {"brief"}


def test_an_image_stays_until_a_question_with_it_is_answered(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(PNG)
    conversation = Conversation()
    conversation.attach(f"{tmp_path}/one")
    failed, asked = conversation.ask("what?"), conversation.ask("what now?")
    assert failed.images == asked.images != ()
    conversation.add(asked, Message("assistant", "well"))
    assert conversation.ask("and?").images == ()


async def test_help(opened: Opened) -> None:
    done = await ran(CHAT, "-u", opened.gateway.url, data=b"/help\n/quit\n1\n")
    assert (done.code, done.out) == (0, "")
    assert "/save FILE     write the conversation" in done.err
