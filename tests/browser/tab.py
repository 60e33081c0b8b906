"""Test -> one page of a headless Chromium, over its DevTools protocol: what a person types, sees and reloads."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientSession, ClientWebSocketResponse
from typing_extensions import override

START_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 30.0
_WAITING: Final = """new Promise(resolve => {
  const look = () => { const seen = (() => (%s))(); if (seen) resolve(seen); else requestAnimationFrame(look); };
  look();
})"""
_KEYS: Final = {"Enter": 13, "Escape": 27, "Tab": 9}


class Tab:
    """One page.

    Attributes:
        problems: what the page or its console reported as an error.
        loaded: what it asked for, by URL, and the bytes that came over the wire.
    """

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.problems: list[str] = []
        self.loaded: dict[str, int] = {}
        self._socket = socket
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._urls: dict[str, str] = {}

    async def call(self, method: str, **parameters: Any) -> Any:
        """What the browser answers to a command of the protocol."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_str(json.dumps({"id": number, "method": method, "params": parameters}))
        return await asyncio.wait_for(answer, WAIT_SECONDS)

    async def read(self) -> None:
        """Take the browser's messages until it ends."""
        async for message in self._socket:
            told = json.loads(message.data)
            if (waiting := self._answers.pop(told.get("id", 0), None)) is not None:
                if "error" in told:
                    waiting.set_exception(AssertionError(told["error"]["message"]))
                else:
                    waiting.set_result(told["result"])
            else:
                self._note(told["method"], told["params"])

    def _note(self, method: str, told: Mapping[str, Any]) -> None:
        match method:
            case "Runtime.exceptionThrown":
                details = told["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description", details["text"]))
            case "Log.entryAdded" if told["entry"]["level"] == "error":
                self.problems.append(told["entry"]["text"])
            case "Network.requestWillBeSent":
                self._urls[told["requestId"]] = told["request"]["url"]
            case "Network.loadingFinished" if told["requestId"] in self._urls:
                self.loaded[self._urls[told["requestId"]]] = int(told["encodedDataLength"])

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, awaited where it is a promise."""
        done = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]["exception"]["description"]
        return done["result"].get("value")

    async def until(self, condition: str) -> Any:
        """Look at an expression in each frame until it is true, and return its value."""
        return await self.evaluate(_WAITING % condition)

    async def open(self, url: str) -> None:
        """Load a page."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def type(self, text: str) -> None:
        """Into what has the focus."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        """Press a key, and release it."""
        code = _KEYS[key]
        text = {"text": "\r"} if key == "Enter" else {}
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **pressed, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    async def click(self, selector: str) -> None:
        """Click on what a CSS selector finds first."""
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    async def text(self, selector: str) -> str:
        """The text that is shown by what a CSS selector finds first."""
        return str(await self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    async def show(self, *, width: int = 1200, height: int = 800, scheme: str = "light") -> None:
        """The size of the window, and whether the person likes it dark."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    @override
    def __repr__(self) -> str:
        return f"Tab(problems={self.problems})"


@asynccontextmanager
async def open_tab(program: str, environment: Mapping[str, str], profile: Path) -> AsyncIterator[Tab]:
    """A page of a new browser; the browser ends with the block."""
    browser = await asyncio.create_subprocess_exec(
        program,
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}"),
        *("--remote-debugging-port=0", "about:blank"),
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert browser.stderr is not None
        async with asyncio.timeout(START_SECONDS):
            line = b""
            while b"DevTools listening on ws://" not in line:
                line = await browser.stderr.readline()
                assert line, "Chromium ended before it listened"
        address = line.split(b"ws://")[1].split(b"/")[0].decode()
        draining = asyncio.create_task(browser.stderr.read())
        async with ClientSession() as http:
            async with http.get(f"http://{address}/json/list") as response:
                (target,) = [each for each in await response.json() if each["type"] == "page"]
            async with http.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                reading = asyncio.create_task(tab.read())
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await tab.call(f"{domain}.enable")
                yield tab
        await reading
    finally:
        browser.kill()
        await browser.wait()
        await draining
