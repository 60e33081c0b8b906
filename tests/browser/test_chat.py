"""The page at `/` in a real browser: typed into, stopped, loaded again, restarted under, and told hostile things."""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import structs
from typing_extensions import override
from yarl import URL

from tests.browser.chromium import chromium_or_skip
from tests.browser.tab import Tab, open_tab
from tests.fakes.answers_llm import AnswersLlm, Steps
from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import CONFIG, KEEPING_TEXTS, ON_ANY_PORT, QUEUES, TEXTS, Opened, open_gateway
from tests.flow.test_gateway_auth import LOCKED, TOKEN
from tests.npm_package import npm_package_or_skip
from tests.until import until
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import GatewayConfig
from tg_base.llm import LlmChunk
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_gateway.app import Gateway
from tg_schema import TextCompletionRequest, ToolCallDelta
from tg_schema.errors import ProviderAuth

pytestmark = pytest.mark.timeout(180)

MAX_WIRE_BYTES: Final = 60_000
END: Final = LlmChunk(in_token=3, out_token=2, finish_reason="stop")
ANSWERED: Final = "document.querySelector('.again')"
IS_OVER: Final = "JSON.parse(Object.values(localStorage)[0]).turns[1].place.over"
COMMANDS: Final = "[...document.querySelectorAll('#shown pre')].map(each => each.textContent)"


class LeftLlm(AnswersLlm):
    """`left` is set when an answer is left before its end, or has ended."""

    def __init__(self, *answers: Steps) -> None:
        super().__init__(*answers)
        self.left = asyncio.Event()

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        try:
            async for chunk in super().generate_content_stream(request):
                yield chunk
        finally:
            self.left.set()


@asynccontextmanager
async def opened_tab(folder: Path) -> AsyncIterator[Tab]:
    program, environment = await asyncio.to_thread(chromium_or_skip, folder / "program")
    async with open_tab(program, environment, folder / "profile") as tab:
        yield tab


@asynccontextmanager
async def opened_page(
    folder: Path,
    *answers: Steps,
    config: GatewayConfig = ON_ANY_PORT,
    before: str = "",
    texts: Sequence[Route[Any, Any]] = TEXTS,
) -> AsyncIterator[tuple[Tab, LeftLlm, Opened]]:
    """A page of a gateway whose model gives these answers; `before` runs in the page before anything else."""
    llm = LeftLlm(*answers)
    async with (
        opened_tab(folder) as tab,
        open_gateway(config, llm=CountingLlm(llm.model), instead=llm, texts=texts) as it,
    ):
        await tab.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        await tab.open(it.gateway.url)
        if not config.keys:
            await tab.until("document.querySelector('#model').value")
        yield tab, llm, it


async def ask(tab: Tab, question: str) -> None:
    await tab.evaluate("document.querySelector('#text').focus()")
    await tab.type(question)
    await tab.press("Enter")


async def check_accessible(tab: Tab) -> None:
    """axe-core finds nothing serious."""
    _, folder = await asyncio.to_thread(npm_package_or_skip, "axe-core", "4.14.1")
    await tab.evaluate((folder / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8") + ";0")
    found = await tab.evaluate("axe.run().then(({violations}) => violations)")
    shown = [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]
    assert not [each for each, told in zip(shown, found, strict=True) if told["impact"] in {"serious", "critical"}]


async def run(command: list[str], folder: Path, url: str) -> str:
    """What a command prints, where the virtual environment's commands are found."""
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "TOKENGRID_TOKEN": TOKEN, "HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=path, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, url
    return out.decode()


def asked_of(request: TextCompletionRequest) -> dict[str, Any]:
    """What must be the same in a page's request and in those that it shows as code."""
    turns = [(turn.role, turn.text) for turn in request.turns]
    return {"system": request.system_text, "turns": turns, "model": request.model, "sampling": request.sampling}


async def test_a_conversation_as_it_comes_and_as_code(tmp_path: Path) -> None:
    go = asyncio.Event()
    first: Steps = (LlmChunk("It *is* "), go, LlmChunk("a topic."), END)
    async with opened_page(tmp_path, first, (LlmChunk("Yes."), END)) as (tab, llm, it):
        await ask(tab, "What's a topic?")
        # It is shown before there is any more of it.
        assert await tab.until("document.querySelector('.answer .text').innerText.trim()") == "It is"
        assert await tab.text(".answer em") == "is"
        go.set()
        await tab.until(ANSWERED)
        assert await tab.text(".answer .text") == "It is a topic."
        figures = await tab.text(".answer .figures")
        assert all(part in figures for part in ("answers", "first token after", "2 tokens", "tokens/s")), figures
        await tab.evaluate("document.querySelector('#temperature').value = '0.5'")
        await ask(tab, "Is 'it'?\n\"$HOME\" \\")
        await tab.until(f"document.querySelectorAll('.answer').length === 2 && {ANSWERED}")
        assert [turn.text for turn in llm.requests[1].turns] == [
            "What's a topic?", "It *is* a topic.", "Is 'it'?\n\"$HOME\" \\",
        ]  # fmt: skip
        await tab.click(".again")
        await tab.until(f"document.querySelectorAll('.answer').length === 2 && {ANSWERED}")
        assert asked_of(llm.requests[2]) == asked_of(llm.requests[1])
        await tab.click("#show-requests")
        curl, program, command = await tab.evaluate(COMMANDS)
        for asking in (["bash", "-c", curl], [sys.executable, "-c", program], ["bash", "-c", command]):
            assert "Yes." in await run(asking, tmp_path, it.gateway.url)
            assert asked_of(llm.requests[-1]) == asked_of(llm.requests[1])
        await check_accessible(tab)
        assert not tab.problems
        assert all(url.startswith(it.gateway.url) for url in tab.loaded)
        assert sum(tab.loaded.values()) <= MAX_WIRE_BYTES


async def test_stopped_and_loaded_again(tmp_path: Path) -> None:
    never = asyncio.Event()
    endless: Steps = (LlmChunk("It begins"), never, END)
    async with opened_page(tmp_path, endless) as (tab, llm, _):
        await ask(tab, "One?")
        await tab.until("document.querySelector('.answer .text').innerText.trim() === 'It begins'")
        await tab.press("Escape")
        await tab.until(ANSWERED)
        assert (await tab.text(".answer .problem"), await tab.text(".answer .text")) == ("Stopped.", "It begins")
        await asyncio.wait_for(llm.left.wait(), 10)
        await ask(tab, "Aside?")
        await tab.until("document.querySelectorAll('.answer .text')[1]?.innerText.trim() === 'It begins'")
        await tab.click("#new")
        await tab.until("document.querySelector('#stop').hidden && document.querySelector('.empty')")
        await tab.click("#kept .open")
        await tab.click(".again")
        await tab.until("document.querySelectorAll('.answer .text')[1]?.innerText.trim() === 'It begins'")
        await tab.call("Page.reload")
        await tab.until(f"document.querySelectorAll('.answer').length === 2 && {ANSWERED}")
        assert await tab.evaluate("document.querySelector('.turn:last-child .text').innerText.trim()") == "It begins"
        assert "the rest is lost" in await tab.text(".turn:last-child .problem")
        assert await tab.text("#kept .open") == "One?"
        await tab.click("#kept .drop")
        await tab.until("document.querySelector('.empty')")
        assert await tab.evaluate("localStorage.length") == 0
        assert not tab.problems


async def test_closing_the_tab_stops_the_model(tmp_path: Path) -> None:
    never = asyncio.Event()
    async with opened_page(tmp_path, (LlmChunk("It begins"), never, END)) as (tab, llm, _):
        await ask(tab, "One?")
        await tab.until("document.querySelector('.answer .text')?.innerText.trim() === 'It begins'")
        await tab.call("Page.close")
        await asyncio.wait_for(llm.left.wait(), 1)


async def test_loaded_again_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    """It goes on, is the same answer, and can be stopped; the model was asked once."""
    go, never = asyncio.Event(), asyncio.Event()
    first: Steps = (LlmChunk(reasoning="Hm."), LlmChunk("It *is* "), go, LlmChunk("a topic."), END)
    second: Steps = (LlmChunk("It begins"), never, END)
    async with opened_page(tmp_path, first, second, texts=KEEPING_TEXTS) as (tab, llm, _):
        await ask(tab, "What's a topic?")
        for _ in range(2):
            await tab.until("document.querySelector('.answer .text')?.innerText.trim() === 'It is'")
            await tab.call("Page.reload")
        await tab.until("document.querySelector('.answer .text')?.innerText.trim() === 'It is'")
        go.set()
        await tab.until(ANSWERED)
        assert await tab.text(".answer .text") == "It is a topic."
        assert await tab.evaluate("document.querySelector('.answer details div').textContent") == "Hm."
        assert (await tab.text(".answer .problem"), await tab.evaluate(IS_OVER)) == ("", True)
        assert len(llm.requests) == 1
        await ask(tab, "Go on.")
        await tab.until("document.querySelectorAll('.answer .text')[1]?.innerText.trim() === 'It begins'")
        assert [turn.text for turn in llm.requests[1].turns] == ["What's a topic?", "It *is* a topic.", "Go on."]
        await tab.call("Page.reload")
        await tab.until("document.querySelectorAll('.answer .text')[1]?.innerText.trim() === 'It begins'")
        llm.left.clear()
        await tab.press("Escape")
        await tab.until(ANSWERED)
        assert await tab.text(".turn:last-child .problem") == "Stopped."
        await asyncio.wait_for(llm.left.wait(), 10)
        assert len(llm.requests) == 2
        assert not tab.problems


async def type_key(tab: Tab, key: str) -> None:
    await tab.until("document.querySelector('#key-dialog')?.open")
    await tab.evaluate("document.querySelector('#key').focus()")
    await tab.type(key)
    await tab.press("Enter")


async def test_a_key_is_asked_for_and_kept_in_memory_alone(tmp_path: Path) -> None:
    async with opened_page(tmp_path, (LlmChunk("Welcome."), END), config=LOCKED) as (tab, _, it):
        for key, said in (("wrong", "does not know this key"), (TOKEN, "")):
            await type_key(tab, key)
            if said:
                await tab.until(f"document.querySelector('#key-error').innerText.includes('{said}')")
        await tab.until("document.querySelector('#model').value")
        await ask(tab, "May I?")
        await tab.until(ANSWERED)
        assert await tab.text(".answer .text") == "Welcome."
        kept = await tab.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])")
        assert TOKEN not in kept
        await tab.click("#show-requests")
        assert all(TOKEN not in each for each in await tab.evaluate(COMMANDS))
        await tab.evaluate("document.querySelector('#text-dialog').close()")
        await tab.click("a[href=metrics]")
        await tab.until("document.querySelector('#shown').innerText.includes('tg_gateway_requests_total')")
        await tab.evaluate("document.querySelector('#text-dialog').close()")
        it.gateway.prepare(structs.replace(LOCKED, keys=LOCKED.keys[:1]))()
        await ask(tab, "Still?")
        await tab.until("document.querySelector('#key-error').innerText.includes('does not know this key')")
        await tab.open(await tab.evaluate("location.href"))
        await tab.until("document.querySelector('#key-dialog').open && !document.querySelector('#key-error').innerText")


async def test_without_its_key_what_had_come_stays(tmp_path: Path) -> None:
    go = asyncio.Event()
    half: Steps = (LlmChunk("Half an"), go, LlmChunk(" answer."), END)
    async with opened_page(tmp_path, half, config=LOCKED, texts=KEEPING_TEXTS) as (tab, llm, _):
        await type_key(tab, TOKEN)
        await tab.until("document.querySelector('#model').value")
        await ask(tab, "May I?")
        await tab.until("document.querySelector('.answer .text')?.innerText.trim() === 'Half an'")
        for _ in range(2):
            await tab.call("Page.reload")
            await tab.until("document.querySelector('#key-dialog')?.open")
            assert await tab.text(".answer .text") == "Half an"
            await tab.press("Escape")
            await tab.until(ANSWERED)
            assert await tab.text(".answer .text") == "Half an"
            assert await tab.text(".answer .problem")
        go.set()
        await tab.call("Page.reload")
        await type_key(tab, TOKEN)
        await tab.until("document.querySelector('.answer .text')?.innerText.trim() === 'Half an answer.'")
        await tab.until(ANSWERED)
        assert (await tab.text(".answer .problem"), len(llm.requests)) == ("", 1)


UNAVAILABLE: Final = """
delete window.WebSocket;
window.pauses = [];
const [wait, ask] = [setTimeout, fetch];
window.setTimeout = (done, milliseconds) => {
  const isPause = milliseconds >= 500 && milliseconds <= 60_000;
  if (isPause) pauses.push(milliseconds / 1000);
  return wait(done, isPause ? 0 : milliseconds);
};
window.fetch = async (url, init) => {
  const isBroken = !localStorage.healed && /v1.streams.[^/]*$/.test(url);
  return isBroken ? new Response("{}", {status: 503}) : ask(url, init);
};
"""
"""Without WebSocket, kept streams cannot be read, and pauses are over at once."""


async def test_an_answer_that_cannot_be_read_on_is_given_up_after_growing_pauses(tmp_path: Path) -> None:
    go = asyncio.Event()
    half: Steps = (LlmChunk("Half an "), go, LlmChunk("answer."), END)
    async with opened_page(tmp_path, half, before=UNAVAILABLE, texts=KEEPING_TEXTS) as (tab, _, _):
        await ask(tab, "One?")
        await tab.until("document.querySelector('.answer .text')?.innerText.trim() === 'Half an'")
        await tab.call("Page.reload")
        await tab.until(ANSWERED)
        pauses = await tab.evaluate("pauses")
        assert pauses == sorted(set(pauses))
        assert 45 <= sum(pauses) <= 90
        assert "503" in await tab.text(".answer .problem")
        assert await tab.text(".answer .text") == "Half an"
        await tab.evaluate("localStorage.healed = 1")
        go.set()
        await tab.call("Page.reload")
        await tab.until("document.querySelector('.answer .text')?.innerText.trim() === 'Half an answer.'")


@asynccontextmanager
async def opened_gateway(bus: Bus, port: int = 0) -> AsyncIterator[Gateway]:
    """One of several gateways on a bus, whose flow keeps its streams."""
    config = structs.replace(ON_ANY_PORT, port=port)
    async with (
        Requestor(bus, CONFIG.topics, queues=QUEUES) as requestor,
        Gateway(config, requestor, KEEPING_TEXTS) as gateway,
    ):
        yield gateway


async def test_an_answer_goes_on_behind_a_gateway_that_restarts(tmp_path: Path) -> None:
    go, bus = asyncio.Event(), MemoryBus()
    llm = AnswersLlm((LlmChunk("Half an "), go, LlmChunk("answer."), END))
    async with (
        opened_tab(tmp_path) as tab,
        Processor(bus, CONFIG.topics, llm, TEXTS, models=(llm.model,), grace=0.05),
        # It makes what the other one began.
        opened_gateway(bus),
    ):
        async with opened_gateway(bus) as gateway:
            await tab.open(gateway.url)
            await tab.until("document.querySelector('#model').value")
            await ask(tab, "One?")
            await tab.until("document.querySelector('.answer .text')?.innerText.trim() === 'Half an'")
        await tab.until("document.querySelector('#note').innerText.includes('The page tries again')")
        async with opened_gateway(bus, URL(gateway.url).port or 0):
            go.set()
            await tab.until(ANSWERED)
            assert await tab.text(".answer .text") == "Half an answer."
            assert (await tab.text(".answer .problem"), len(llm.requests)) == ("", 1)
    await bus.aclose()


async def test_what_had_come_of_a_stream_that_is_gone_stays(tmp_path: Path) -> None:
    """The gateway has another bus when the page is opened again."""
    never = asyncio.Event()
    llm = AnswersLlm((LlmChunk("Half an"), never, END))
    asking: dict[str, Any] = {"llm": CountingLlm(llm.model), "instead": llm, "texts": KEEPING_TEXTS}
    async with opened_tab(tmp_path) as tab:
        async with open_gateway(**asking) as it:
            await tab.open(it.gateway.url)
            await tab.until("document.querySelector('#model').value")
            await ask(tab, "One?")
            await tab.until("document.querySelector('.answer .text')?.innerText.trim() === 'Half an'")
            await tab.open("about:blank")
        async with open_gateway(structs.replace(ON_ANY_PORT, port=it.address[1]), **asking) as it:
            await tab.open(it.gateway.url)
            for _ in range(2):
                await tab.until(ANSWERED)
                assert await tab.text(".answer .text") == "Half an"
                assert "nothing of this name is kept" in await tab.text(".answer .problem")
                assert await tab.evaluate(IS_OVER)
                await tab.call("Page.reload")
        assert len(llm.requests) == 1


GOING: Final = """
delete window.WebSocket;
const [ask, first] = [fetch, 'id: 0\\ndata: {"response": "Half"}\\n\\n'];
const gone = '{"error": {"type": "not-found", "message": "gone"}}';
window.fetch = async (url, init) => !/v1.streams/.test(url) ? ask(url, init)
  : /offset=-1$/.test(url) ? new Response(first) : new Response(gone, {status: 404});
"""
"""Without WebSocket, and of kept streams one event comes before they are gone."""


async def test_what_had_come_is_not_replaced_by_less(tmp_path: Path) -> None:
    never = asyncio.Event()
    half: Steps = (LlmChunk("Half an ans"), never, END)
    async with opened_page(tmp_path, half, before=GOING, texts=KEEPING_TEXTS) as (tab, _, _):
        await ask(tab, "One?")
        await tab.until("document.querySelector('.answer .text')?.innerText.trim() === 'Half an ans'")
        for _ in range(2):
            await tab.call("Page.reload")
            await tab.until(ANSWERED)
            assert await tab.text(".answer .text") == "Half an ans"
            assert await tab.text(".answer .problem") == "gone"


async def test_a_gateway_that_restarts_under_the_page(tmp_path: Path) -> None:
    never = asyncio.Event()
    llm = AnswersLlm((LlmChunk("Half an"), never, END), (LlmChunk("Whole."), END))
    async with opened_tab(tmp_path) as tab:
        async with open_gateway(llm=CountingLlm(llm.model), instead=llm) as it:
            port = it.address[1]
            await tab.open(it.gateway.url)
            await tab.until("document.querySelector('#model').value")
            await ask(tab, "One?")
            await tab.until("document.querySelector('.answer .text').innerText.trim() === 'Half an'")
        await tab.until("document.querySelector('#note').innerText.includes('The page tries again')")
        assert await tab.text(".answer .text") == "Half an"
        assert await tab.text(".answer .problem")
        again = structs.replace(ON_ANY_PORT, port=port)
        async with open_gateway(again, llm=CountingLlm(llm.model), instead=llm):
            await tab.until("document.querySelector('#note').innerText.includes('Connected again')")
            await tab.until("document.querySelector('#model').value")
            await tab.click(".again")
            await tab.until("document.querySelector('.answer .text').innerText.trim() === 'Whole.'")


async def test_a_browser_without_websocket_gets_events(tmp_path: Path) -> None:
    go = asyncio.Event()
    answer: Steps = (LlmChunk("one "), go, LlmChunk("two"), END)
    async with opened_page(tmp_path, answer, (ProviderAuth("no"),), before="delete window.WebSocket") as (tab, _, it):
        await ask(tab, "Go on.")
        await tab.until("document.querySelector('.answer .text').innerText.trim() === 'one'")
        go.set()
        await tab.until(ANSWERED)
        assert await tab.text(".answer .text") == "one two"
        assert "without WebSocket" in await tab.text("#connection")
        await ask(tab, "Fail.")
        await tab.until(f"document.querySelectorAll('.answer').length === 2 && {ANSWERED}")
        assert await tab.text(".turn:last-child .problem") == "no"
        assert all(url.startswith(it.gateway.url) for url in tab.loaded)


HOSTILE: Final = """<script>window.caught = 1</script> <img src="http://127.0.0.1:9/a" onerror="window.caught = 2">

![seen](http://127.0.0.1:9/b) [press](javascript:window.caught=3) [fine](https://app.example/) <b onclick=x>bold</b>

<style>body { display: none }</style> \x1b[31mred\x1b[0m \u202egnisrever\u202c

- [x] done

| a | b |
|---|--:|
| 1 | 2 |

5. five
"""


async def test_what_a_model_says_is_harmless(tmp_path: Path) -> None:
    thinking = LlmChunk(reasoning="Let me <b>think</b>.")
    call = LlmChunk(tool_calls=(ToolCallDelta(0, "c", "look\u202e", '{"a": 1}'),))
    pieces = [LlmChunk(HOSTILE[at : at + 7]) for at in range(0, len(HOSTILE), 7)]
    async with opened_page(tmp_path, (thinking, *pieces, call, END)) as (tab, _, it):
        await ask(tab, "Attack.")
        await tab.until(ANSWERED)
        await tab.evaluate("document.querySelector('.answer a[href]').focus()")
        assert await tab.evaluate("window.caught") is None
        assert await tab.evaluate("document.querySelector('.answer .text :is(script, img, style, b)')") is None
        links = await tab.evaluate("[...document.querySelectorAll('.answer .text a')].map(a => a.getAttribute('href'))")
        assert links == ["http://127.0.0.1:9/b", None, "https://app.example/"]
        shown = await tab.text(".answer .text")
        assert "<script>window.caught = 1</script>" in shown
        assert "\u241b[31mred" in shown
        assert "[U+202E]gnisrever[U+202C]" in shown
        assert await tab.text(".answer td[align=right]") == "2"
        assert await tab.text(".answer ol[start='5'] li") == "five"
        folded = await tab.evaluate("[...document.querySelectorAll('.answer details')].map(each => each.open)")
        assert folded == [False, False]
        assert await tab.evaluate("document.querySelector('.answer details div').textContent") == "Let me <b>think</b>."
        assert "look[U+202E]" in await tab.evaluate("document.querySelectorAll('.answer summary')[1].textContent")
        assert all(url.startswith(it.gateway.url) for url in tab.loaded)
        await check_accessible(tab)
        await tab.show(width=360, height=700, scheme="dark")
        assert await tab.evaluate("document.documentElement.scrollWidth") == 360
        await check_accessible(tab)
        assert not tab.problems


async def test_a_long_answer_is_added_to(tmp_path: Path) -> None:
    """Of what is finished nothing is made again, and no frame has more to do than a bound: also of 1 MB on one line."""
    words = [LlmChunk("".join(f"word{at + number} " for number in range(10))) for at in range(0, 19_000, 10)]
    items = [LlmChunk(f"- item {number}\n") for number in range(1000)]
    end = (LlmChunk("\n\nThe *end*.\n\n"), *items, LlmChunk("\n\n" + "x" * 1_000_000), END)
    steps = (LlmChunk("# Title\n\n"), *words, *end)
    async with opened_page(tmp_path, steps) as (tab, _, _):
        await ask(tab, "Long, please.")
        # Only what another block follows is finished, and the first frame may have had both: wait for a later one.
        await tab.until("document.querySelector('.answer .text')?.textContent.length > 20_000")
        await tab.evaluate("document.querySelector('.answer h1').dataset.mine = 1")
        await tab.until(ANSWERED)
        assert await tab.evaluate("document.querySelector('.answer h1').dataset.mine") == "1"
        shown = await tab.evaluate("document.querySelector('.answer .text').textContent")
        assert shown.startswith("Title\nword0 word1 ")
        assert "word18999" in shown
        assert shown.count("x") == 1_000_000
        assert await tab.evaluate("document.querySelectorAll('.answer em').length") == 1
        listed = await tab.evaluate("[...document.querySelectorAll('.answer li')].map(each => each.innerText)")
        assert listed == [f"item {number}" for number in range(1000)]
        leaves = "[...document.querySelectorAll('.answer .text :not(:has(*))')]"
        assert await tab.evaluate(f"Math.max(...{leaves}.map(each => each.textContent.length))") <= 8_192


async def test_what_the_gateway_does_now_is_watched_and_stopped(tmp_path: Path) -> None:
    """The table keeps its rows, and so the focus, while its cells change; a stopped stream ends its model."""
    go = asyncio.Event()
    async with opened_page(tmp_path, (LlmChunk("It is <b> "), go, END)) as (tab, llm, it):
        asking = {"prompt": "x", "streaming": True}
        async with it.http.post("api/v1/text-completion", json=asking) as response:
            await tab.click("#watch")
            await tab.until("document.querySelector('#shown button[aria-label^=Stop]')")
            assert "default/text-completion" in await tab.text("#shown .scroll:nth-of-type(3) tbody td")
            await tab.evaluate("document.querySelector('#shown button[aria-label^=Stop]').focus()")
            age = "Number(document.querySelector('#shown .scroll:nth-of-type(3) tbody td:nth-of-type(4)').innerText)"
            await tab.until(f"{age} >= 1")
            assert await tab.evaluate("document.activeElement.innerText") == "Stop"
            await check_accessible(tab)
            await tab.show(width=360, height=700, scheme="dark")
            assert await tab.evaluate("document.documentElement.scrollWidth") == 360
            await check_accessible(tab)
            await tab.press("Enter")
            assert b'"type":"cancelled"' in await response.read()
            await asyncio.wait_for(llm.left.wait(), 1)
        await tab.until("!document.querySelector('#shown button[aria-label^=Stop]')")
        assert "0 streams" in await tab.text("#shown [role=status]")
        await tab.click("#text-dialog form button")
        await until(lambda: not it.gateway._live._followers)
        assert not tab.problems
        assert sum(tab.loaded.values()) < MAX_WIRE_BYTES
