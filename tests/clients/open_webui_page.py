"""docs/with-open-webui.md, done as it says: Open WebUI in a browser gets an answer from a gateway, and is photographed.

python -m tests.clients.open_webui_page [--write]

--write puts the picture into the page.
"""

import argparse
import asyncio
import logging
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from tg_schema import COMMON_FEATURES

PAGE: Final = ROOT / "docs" / "with-open-webui.md"
PICTURE: Final = PAGE.with_name("open-webui.png")
MODEL: Final = "my-model"
QUESTION: Final = "What is a topic?"
ANSWER: Final = (
    "A **topic** is a named stream of messages:\n\n",
    "- producers add to its end,\n",
    "- consumers read it.",
)
SHOWN: Final = "consumers read it."
PERSON: Final = {"name": "Anna", "email": "anna@example.com", "password": "a-Secret-7"}
SEND: Final = "#send-message-button:not([disabled])"
OKAY: Final = "[...document.querySelectorAll('button')].find(each => each.innerText.startsWith('Okay'))"
START_SECONDS: Final = 120.0
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


async def sign_up(tab: Tab) -> None:
    """The first person may configure everything, and is greeted twice."""
    await tab.until("document.querySelector('button') !== null")
    await tab.click("button")
    for name, text in PERSON.items():
        await focus(tab, f"#{name}")
        await tab.type(text)
    await tab.press("Enter")
    await tab.until(f"{OKAY} !== undefined")
    await tab.evaluate(f"{OKAY}.click()")


async def focus(tab: Tab, selector: str) -> None:
    """As soon as it is there."""
    await tab.until(f"document.querySelector('{selector}') !== null")
    await tab.evaluate(f"document.querySelector('{selector}').focus()")


async def ask(tab: Tab, question: str) -> None:
    """Returns when the answer is shown to its end."""
    await focus(tab, "#chat-input")
    await tab.type(question)
    await tab.until(f"document.querySelector('{SEND}') !== null")
    await tab.click(SEND)
    await tab.until(f"document.querySelector('#response-content-container')?.innerText.includes({SHOWN!r})")
    # A notice covers the question for some seconds.
    await tab.until("document.querySelector('[data-sonner-toast]') === null")


async def take_picture(picture: Path, folder: Path) -> None:
    """Ask in the page, and see the answer there."""
    llm = TurnsLlm(ANSWER, features=COMMON_FEATURES, model=MODEL)
    program, environment = chromium_or_skip(folder / "chromium")
    async with (
        open_gateway(llm=CountingLlm(MODEL), instead=llm) as it,
        serving(it.gateway.url, folder) as url,
        open_tab(program, environment, folder / "profile") as tab,
    ):
        await tab.show(width=1000, height=480)
        await tab.open(url)
        await sign_up(tab)
        await ask(tab, QUESTION)
        await tab.photograph(picture)
    assert any(request.turns[-1].text == QUESTION for request in llm.requests)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.open_webui_page")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        folder = Path(made)
        asyncio.run(take_picture(PICTURE if options.write else folder / PICTURE.name, folder))
    print("Open WebUI showed the answer")


if __name__ == "__main__":
    main()
