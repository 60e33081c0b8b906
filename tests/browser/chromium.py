"""A page -> headless Chromium -> what the page has seen: for what only a browser enforces."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

REPORT_SECONDS = 60.0


def chromium_or_skip() -> str:
    """The browser's program."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium is installed: `apt-get install chromium` on Debian")
    return program


class PageServer:
    """Serves one page at an origin of its own. The page posts what it has seen to `/report`.

    Attributes:
        origin: of the page.
    """

    def __init__(self, page: str) -> None:
        self.origin = ""
        self._page = page
        self._report: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @classmethod
    @asynccontextmanager
    async def serving(cls, page: str) -> AsyncIterator["PageServer"]:
        """Serve on a free loopback port."""
        server = cls(page)
        application = web.Application()
        application.router.add_get("/", server._show)
        application.router.add_post("/report", server._take)
        async with TestServer(application) as listening:
            server.origin = str(listening.make_url("")).rstrip("/")
            yield server

    async def visit(self, program: str, query: str, folder: Path) -> str:
        """What the page reports when Chromium has opened it."""
        browser = await asyncio.create_subprocess_exec(
            program,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}"),
            *("--remote-debugging-port=0", f"{self.origin}/?{query}"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            return await asyncio.wait_for(self._report, REPORT_SECONDS)
        finally:
            browser.kill()
            await browser.wait()

    async def _show(self, request: web.Request) -> web.Response:
        return web.Response(text=self._page, content_type="text/html")

    async def _take(self, request: web.Request) -> web.Response:
        if not self._report.done():
            self._report.set_result(await request.text())
        return web.Response()
