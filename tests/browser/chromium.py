"""A page -> headless Chromium -> what the page has seen: for what only a browser enforces."""

import asyncio
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.fakes.serve_routes import serve_routes
from tests.npm_package import npm_package_or_skip

REPORT_SECONDS = 60.0
UNPACK_SECONDS = 100.0
VERSION = "153.0.0"
"""Of the npm package, and of the Chromium in it."""
UNPACK = """
import chromium from "@sparticuz/chromium";
process.stdout.write(await chromium.executablePath());
"""


def chromium_or_skip(folder: Path) -> tuple[str, Mapping[str, str]]:
    """The browser's program and environment: the system's, or else that of an npm package, unpacked into `folder`."""
    installed = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    if (program := next(filter(None, installed), None)) is not None:
        return program, os.environ
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("no Chromium is installed, and its npm package is for Linux on x86-64: install Chromium")
    node, package = npm_package_or_skip("@sparticuz/chromium", VERSION)
    folder.mkdir()
    # It unpacks the system's libraries as well where it takes the machine for one of AWS Lambda, which has few.
    environment = {**os.environ, "TMPDIR": str(folder), "AWS_LAMBDA_JS_RUNTIME": "nodejs22.x"}
    command = [node, "--input-type=module", "--eval", UNPACK]
    done = subprocess.run(
        command, cwd=package, env=environment, check=True, capture_output=True, text=True, timeout=UNPACK_SECONDS
    )
    return done.stdout, {**os.environ, "LD_LIBRARY_PATH": str(folder / "al2023" / "lib")}


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
        async with serve_routes({"GET /": server._show, "POST /report": server._take}) as server.origin:
            yield server

    async def visit(self, program: str, environment: Mapping[str, str], query: str, folder: Path) -> str:
        """What the page reports when Chromium has opened it."""
        browser = await asyncio.create_subprocess_exec(
            program,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}"),
            *("--remote-debugging-port=0", f"{self.origin}/?{query}"),
            env=environment,
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
