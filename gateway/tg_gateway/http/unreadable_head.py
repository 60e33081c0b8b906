"""Bytes that are not a valid request -> the reason, and the path whose door words the refusal."""

import re
from typing import Final, NamedTuple, Self

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong

MAX_HEAD_LINE_BYTES: Final = 8190
"""The most bytes of a request's first line, and of each of its headers."""
MAX_HEADERS: Final = 128
"""The most headers of a request."""
MAX_PATH_BYTES: Final = 256
"""Bytes of a request's first line that are kept, to find its path if the head cannot be read."""
# Empty lines before a request are allowed (RFC 9112, section 2.2).
_LINE: Final = re.compile(rb"[\r\n]*(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH) (/[\w./:-]*)", re.ASCII)
_TLS: Final = b"\x16\x03"

begins_request: Final = _LINE.match
"""Whether bytes begin as a request does."""


class UnreadableHead(NamedTuple):
    """A request whose head could not be read.

    Attributes:
        path: "/" if it is not known.
        refusal: status and sentence.
        goes_on: whether more of the request may follow.
    """

    path: str
    refusal: web.HTTPException
    goes_on: bool

    @classmethod
    def of(cls, error: HttpProcessingError, begin: bytes) -> Self:
        """Why a head could not be read.

        Args:
            error: the parser's.
            begin: the request's first `MAX_PATH_BYTES`.
        """
        found = _LINE.match(begin)
        path = found[1].decode() if found else "/"
        return cls(path, _find_refusal(error, begin), isinstance(error, LineTooLong))


def _find_refusal(error: HttpProcessingError, begin: bytes) -> web.HTTPException:
    if isinstance(error, LineTooLong):
        # aiohttp's error contains the first bytes of the part that was too long.
        if error.args[0].removesuffix(b"...") in begin.lstrip().partition(b"\n")[0]:
            text = f"the URL is too long: it may have {MAX_HEAD_LINE_BYTES} bytes; send less in it"
            return web.HTTPRequestURITooLong(text=text)
        text = f"a header is too long: each may have {MAX_HEAD_LINE_BYTES} bytes; send less in it"
        return web.HTTPRequestHeaderFieldsTooLarge(text=text)
    if "Too many headers" in error.message:
        text = f"the request has too many headers: {MAX_HEADERS} are read; send fewer"
        return web.HTTPRequestHeaderFieldsTooLarge(text=text)
    if isinstance(error, BadHttpMethod) and begin.startswith(_TLS):
        return web.HTTPBadRequest(text="this port speaks HTTP without TLS: ask it by http://")
    # The parser's own sentence quotes the request, which may hold a secret.
    what = "first line" if isinstance(error, BadHttpMethod) or not _LINE.match(begin) else "head"
    return web.HTTPBadRequest(text=f"this is no HTTP request: its {what} is malformed")
