"""docs/with-open-webui.md, done as it says: Open WebUI in a browser gets an answer from a gateway, and is photographed.

python -m tests.clients.open_webui_page [--write] [--demo]

--write puts the picture into the page; --demo has the demo model answer, in place of one that says what is written.
"""

import argparse
import asyncio
import base64
import logging
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Final

import structlog
from aiohttp import ClientConnectionError, ClientSession

from tests.browser.chromium import chromium_or_skip
from tests.browser.tab import Tab, open_tab
from tests.clients.clients import CLIENTS
from tests.clients.environment import command_of
from tests.docs.page import ROOT, blocks
from tests.fakes.counting_llm import CountingLlm
from tests.fakes.turns_llm import TurnsLlm
from tests.flow.open_gateway import open_gateway
from tests.free_port import free_port
from tg_base.llm import LlmService
from tg_flow.providers import open_provider
from tg_schema import COMMON_FEATURES

PAGE: Final = ROOT / "docs" / "with-open-webui.md"
PICTURE: Final = PAGE.with_name("open-webui.png")
QUESTION: Final = "What is a topic?"
ANSWER: Final = (
    "A **topic** is a named stream of messages:\n\n",
    "- producers add to its end,\n",
    "- consumers read it.",
)
SHOWN: Final = "consumers read it."
DEMO_SHOWN: Final = "a named stream of messages"
"""Of the demo model's answer. Open WebUI sends its own tools with the question, in which a model may lose itself."""
PERSON: Final = {"name": "Anna", "email": "anna@example.com", "password": "a-Secret-7"}
SEND: Final = "#send-message-button:not([disabled])"
OKAY: Final = "[...document.querySelectorAll('button')].find(each => each.innerText.startsWith('Okay'))"
START_SECONDS: Final = 300.0
HERE_ALONE: Final = {"OFFLINE_MODE": "true", "RAG_EMBEDDING_ENGINE": "openai", "DATA_DIR": "data"}
"""Settings for a machine that reaches no other one, and has no packages to run models with."""


@asynccontextmanager
async def serving(gateway: str, folder: Path) -> AsyncIterator[str]:
    """The URL of Open WebUI, started by the page's commands but for the one that installs it."""
    (client,) = (client for client in CLIENTS if client.name == "Open WebUI")
    programs = Path(command_of(client)[0]).parent
    (block,) = (block.text for block in blocks(PAGE) if "open-webui serve" in block.text)
    url = f"http://localhost:{free_port()}"
    commands = block.partition("\n")[2].replace("http://localhost:8888/", gateway)
    commands = commands.replace("webui/bin/", f"exec {programs}/").replace("8080", url.rpartition(":")[2])
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **HERE_ALONE}
    with (folder / "log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(
            "bash", "-ec", commands, cwd=folder, env=environment, stdout=log, stderr=log
        )
        try:
            async with asyncio.timeout(START_SECONDS), ClientSession(url) as http:
                while not await is_healthy(http):
                    assert server.returncode is None, (folder / "log").read_text("utf-8")
                    await asyncio.sleep(0.2)
            yield url
        finally:
            server.send_signal(signal.SIGKILL)
            await server.wait()


async def is_healthy(http: ClientSession) -> bool:
    try:
        async with http.get("/health") as answer:
            return answer.ok
    except ClientConnectionError:
        return False


async def until(tab: Tab, condition: str) -> None:
    """Look at a condition again and again: the page takes as long to load as its server to start."""
    async with asyncio.timeout(START_SECONDS):
        while not await tab.evaluate(condition):  # noqa: ASYNC110 - no event tells what a page of others shows
            await asyncio.sleep(0.2)


async def sign_up(tab: Tab) -> None:
    """The first person may configure everything, and is greeted twice."""
    await until(tab, "document.querySelector('button') !== null")
    await tab.click("button")
    for name, text in PERSON.items():
        await focus(tab, f"#{name}")
        await tab.type(text)
    await tab.press("Enter")
    await until(tab, f"{OKAY} !== undefined")
    await tab.evaluate(f"{OKAY}.click()")


async def focus(tab: Tab, selector: str) -> None:
    """As soon as it is there."""
    await until(tab, f"document.querySelector('{selector}') !== null")
    await tab.evaluate(f"document.querySelector('{selector}').focus()")


async def ask(tab: Tab, question: str, shown: str) -> None:
    """Returns when this part of the answer is shown."""
    await focus(tab, "#chat-input")
    await tab.type(question)
    await until(tab, f"document.querySelector('{SEND}') !== null")
    await tab.click(SEND)
    await until(tab, f"document.querySelector('#response-content-container')?.innerText.includes({shown!r})")
    # A notice covers the question for some seconds.
    await until(tab, "document.querySelector('[data-sonner-toast]') === null")


async def open_model(*, demo: bool) -> LlmService:
    """The model behind the gateway."""
    if demo:
        return await open_provider("demo", "tinydemo", {"temperature": 0})
    return TurnsLlm(ANSWER, features=COMMON_FEATURES, model="my-model")


async def photograph(folder: Path, *, demo: bool) -> bytes:
    """Ask in the page, and see the answer there: a picture of it, as PNG."""
    llm = await open_model(demo=demo)
    program, environment = chromium_or_skip(folder / "chromium")
    async with (
        aclosing(llm),
        open_gateway(llm=CountingLlm(llm.model), instead=llm) as it,
        serving(it.gateway.url, folder) as url,
        open_tab(program, environment, folder / "profile") as tab,
    ):
        await tab.show(width=1000, height=480)
        await tab.open(url)
        await sign_up(tab)
        await ask(tab, QUESTION, DEMO_SHOWN if demo else SHOWN)
        taken = await tab.call("Page.captureScreenshot")
    return base64.b64decode(taken["data"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.open_webui_page")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--demo", action="store_true")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        picture = asyncio.run(photograph(Path(made), demo=options.demo))
    if options.write:
        PICTURE.write_bytes(picture)
    print("Open WebUI showed the answer")


if __name__ == "__main__":
    main()
