"""Browser -> gateway: `/docs`, a page without anything from elsewhere, and `/openapi.json`, which it reads."""

import asyncio
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from typing import Any, Final

from aiohttp import web

from tg_gateway.dialects import Description, Dialect, Mount
from tg_gateway.http import Alive, Handler, Ready, defer_expectation, find_pages
from tg_gateway.openapi.document import make_document
from tg_gateway.openapi.row import Row, list_rows
from tg_schema import encode
from tg_schema.errors import Unavailable

_describe = partial(Description, group="Gateway")
_METRICS: Final = "text/plain"


def list_own_rows(refusing: Dialect, failure: Any) -> tuple[Row, ...]:
    """Health, metrics, pages of installed packages, and the documentation itself.

    Args:
        refusing: the dialect that refuses for them.
        failure: the JSON of its refusals.
    """
    describe = partial(_describe, failure=failure)
    ready = describe(
        summary="Tell whether the gateway is of use", answer=Ready, failure=(failure, Ready), raises=(Unavailable,)
    )
    return (
        _make_row("/health", refusing, describe(summary="Tell whether the gateway lives", answer=Alive)),
        _make_row("/ready", refusing, ready),
        _make_row(
            "/metrics", refusing, describe(summary="Show the metrics", answer=str, media=_METRICS), keyless=False
        ),
        *(
            _make_row(page.path, refusing, describe(summary=page.summary, answer=page.answer), keyless=False)
            for page in find_pages()
        ),
        _make_row("/openapi.json", refusing, describe(summary="Describe all doors", answer=dict[str, Any])),
        _make_row("/docs", refusing, describe(summary="Show this document", answer=str, media="text/html")),
    )


def _make_row(path: str, refusing: Dialect, described: Description, *, keyless: bool = True) -> Row:
    return Row(Mount("GET", path, refusing, "", keyless=keyless), (described,))


DOCUMENT_PATH: Final = "/openapi.json"
PAGE_PATH: Final = "/docs"
_FILES: Final = {
    PAGE_PATH: ("page.html", "text/html"),
    f"{PAGE_PATH}/page.js": ("page.js", "text/javascript"),
    f"{PAGE_PATH}/page.css": ("page.css", "text/css"),
}
_HEADERS: Final = {
    # The page may load and request only from this gateway, whatever the shown answers contain.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Documentation:
    """The document, made once at its first request, and the files of the page.

    Args:
        mounts: the gateway's table; the first row's dialect refuses for the gateway's own paths.
    """

    def __init__(self, mounts: Sequence[Mount]) -> None:
        self._mounts = mounts
        self._document = b""
        self._making = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        """All paths."""
        shown = [self._route(path, self._make_show(name, kind)) for path, (name, kind) in _FILES.items()]
        return [self._route(DOCUMENT_PATH, self._show_document), *shown, self._route(f"{PAGE_PATH}/", _lead_to_page)]

    def _route(self, path: str, answer: Handler) -> web.RouteDef:
        return web.get(path, answer, expect_handler=defer_expectation)

    async def _show_document(self, request: web.Request) -> web.StreamResponse:
        async with self._making:
            # In a thread: it takes a tenth of a second, and no stream should wait for that.
            self._document = self._document or await asyncio.to_thread(self._make_document)
        return web.Response(body=self._document, content_type="application/json", headers=_HEADERS)

    def _make_document(self) -> bytes:
        rows = list_rows(self._mounts)
        own = list_own_rows(self._mounts[0].dialect, rows[0].descriptions[0].failure) if rows else ()
        return encode(make_document((*rows, *own)))

    def _make_show(self, name: str, kind: str) -> Handler:
        # Read at the start: a handler must not wait for a disk.
        body = files(__package__).joinpath("page", name).read_bytes()

        async def show(request: web.Request) -> web.StreamResponse:
            return web.Response(body=body, content_type=kind, charset="utf-8", headers=_HEADERS)

        return show


async def _lead_to_page(request: web.Request) -> web.StreamResponse:
    """People also type the path with a slash at its end. The redirect is relative, since a proxy may add a prefix."""
    return web.Response(status=308, headers={**_HEADERS, "Location": f"..{PAGE_PATH}"})
