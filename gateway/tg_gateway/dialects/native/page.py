"""Browser -> gateway: the page at `/`, which chats over our own protocol, and the files that it loads."""

import gzip
from collections.abc import Iterator
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import PurePath
from typing import Final

from tg_base.runtime import find_entry_points
from tg_gateway.dialects import Answer, Call
from tg_schema.errors import NotFound

PAGE: Final = "page"
"""The operations of the page and of its files."""
INDEX: Final = "index.html"
_PAGES: Final = "tokengrid.pages"
"""The group of the pages of other packages, to which it links (`tg_gateway.http`)."""
_LINKS_PLACE: Final = b"<!-- pages -->"
_KINDS: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_HEADERS: Final = {
    # Whatever a model says, it can neither load nor send anything: no image, no script, no form.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'; require-trusted-types-for 'script'; trusted-types dompurify",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    "Vary": "Accept, Accept-Encoding",
}


@cache
def _read_files() -> dict[str, tuple[bytes, bytes]]:
    """Each file by its name, uncompressed and compressed. The page is small: all of it stays in memory."""
    found = {path.name: path.read_bytes() for path in files(__package__).joinpath("page_files").iterdir()}
    found[INDEX] = found[INDEX].replace(_LINKS_PLACE, "".join(_write_links()).encode())
    return {name: (body, gzip.compress(body)) for name, body in found.items() if PurePath(name).suffix in _KINDS}


def _write_links() -> Iterator[str]:
    for page in [point.load() for point in find_entry_points(_PAGES)]:
        yield f'<li><a href="{escape(page.path.lstrip("/"))}" class="keyed">{escape(page.summary)}</a></li>'


def show_page(call: Call) -> Answer:
    """The page or, where the path names one, a file of it.

    Raises:
        NotFound: it has no such file.
    """
    name = call.path.get("file", INDEX)
    if name not in _read_files():
        raise NotFound("the page has no such file: load it again")
    plain, packed = _read_files()[name]
    kind = f"{_KINDS[PurePath(name).suffix]}; charset=utf-8"
    if "gzip" in call.headers.get("Accept-Encoding", ""):
        return Answer(packed, content_type=kind, headers={**_HEADERS, "Content-Encoding": "gzip"})
    return Answer(plain, content_type=kind, headers=_HEADERS)
