"""`GET /instances` -> what the pickers of this process know: a page for browsers, JSON for programs."""

import asyncio
import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from aiohttp import web
from typing_extensions import override

from tg_gateway.http import Page
from tg_picker.page.document import write_document
from tg_picker.status import BOARDS, InstancesStatus, read_status
from tg_schema import encode

INSTANCES_PATH: Final = "/instances"
FRESH_SECONDS: Final = 0.1
"""How long a page is reused: with many servers, creating it takes milliseconds of the event loop."""
_NEVER: Final = (float("-inf"), b"")


class InstancesPage(Page):
    """The page and its JSON. The page is a single file: style and script are embedded."""

    path = INSTANCES_PATH
    summary = "Show the model servers"
    answer = InstancesStatus

    def __init__(self) -> None:
        # Read the files at the start: a request handler must not wait for a disk.
        self._style, self._script = (_read(name) for name in ("page.css", "page.js"))
        self._headers = _headers(self._style, self._script)
        self._made: dict[str, tuple[float, bytes]] = {}

    @override
    async def show(self, request: web.Request) -> web.Response:
        """The page if the client wants HTML, else JSON; `format=html` and `format=json` override its headers."""
        preferred = "html" if "text/html" in request.headers.get("Accept", "") else "json"
        kind = "json" if request.query.get("format", preferred) == "json" else "html"
        now = asyncio.get_running_loop().time()
        made_at, body = self._made.get(kind, _NEVER)
        if now - made_at > FRESH_SECONDS:
            body = self._make(kind)
            self._made[kind] = now, body
        content = "application/json" if kind == "json" else "text/html"
        return web.Response(body=body, content_type=content, charset="utf-8", headers=self._headers)

    def _make(self, kind: str) -> bytes:
        status = read_status(BOARDS)
        return encode(status) if kind == "json" else write_document(status, self._style, self._script).encode()


def _read(name: str) -> str:
    return files(__package__).joinpath("page", name).read_text("utf-8")


def _headers(style: str, script: str) -> Mapping[str, str]:
    # Clients' names are escaped. Even an unescaped one could not load, run or send anything under this policy.
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; connect-src 'self'; "
    return {
        "Content-Security-Policy": f"{policy}base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "Vary": "Accept",
    }


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
