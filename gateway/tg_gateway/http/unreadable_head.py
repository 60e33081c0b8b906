"""Bytes that are no request -> a request of that path, which the middleware refuses in the shape of its door."""

import re
from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

MAX_NAMED_BYTES: Final = 256
"""Of a line that is not whole, to find its path."""
_LINE: Final = re.compile(rb"(GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH) (/[\w./:-]*)", re.ASCII)
_TLS: Final = b"\x16\x03"


class UnreadableHead(CIMultiDictProxy[str]):
    """The headers of a request whose head could not be read: none.

    Attributes:
        refusal: status and sentence.
    """

    refusal: web.HTTPException


class StartLine:
    """What came of a request's first line.

    Attributes:
        begin: its first bytes.
        size: how many came, up to its end.
    """

    __slots__ = ("_over", "begin", "size")

    def __init__(self) -> None:
        self.begin = b""
        self.size = 0
        self._over = False

    def add(self, data: bytes) -> None:
        """The next bytes of the request."""
        if not self.begin:
            # Empty lines before a request are allowed (RFC 9112, section 2.2).
            data = data.lstrip(b"\r\n")
        if not self._over and data:
            line, end, _ = data.partition(b"\n")
            self.begin = (self.begin + line[:MAX_NAMED_BYTES])[:MAX_NAMED_BYTES]
            self.size += len(line)
            self._over = bool(end)


def make_unreadable(error: HttpProcessingError, line: StartLine, limits: tuple[int, int]) -> RawRequestMessage:
    """A request with an `UnreadableHead`, after which its connection closes.

    Args:
        error: the parser's.
        line: the first that could not be read, or one before it.
        limits: the most bytes of the first line and of a header, and the most headers.
    """
    headers = UnreadableHead(CIMultiDict())
    headers.refusal = _find_refusal(error, line, limits)
    found = _LINE.match(line.begin)
    method, path = (found[1].decode(), found[2].decode()) if found else ("GET", "/")
    url = URL.build(path=path, encoded=True)
    return RawRequestMessage(method, path, HttpVersion11, headers, (), True, None, False, False, url)


def _find_refusal(error: HttpProcessingError, line: StartLine, limits: tuple[int, int]) -> web.HTTPException:
    most_bytes, most_headers = limits
    if isinstance(error, LineTooLong):
        if line.size > most_bytes:
            text = f"the URL is too long: it may have {most_bytes} bytes; send less in it"
            return web.HTTPRequestURITooLong(text=text)
        text = f"a header is too long: each may have {most_bytes} bytes; send less in it"
        return web.HTTPRequestHeaderFieldsTooLarge(text=text)
    if "Too many headers" in error.message:
        text = f"the request has too many headers: {most_headers} are read; send fewer"
        return web.HTTPRequestHeaderFieldsTooLarge(text=text)
    if isinstance(error, BadHttpMethod) and line.begin.startswith(_TLS):
        return web.HTTPBadRequest(text="this port speaks HTTP without TLS: ask it by http://")
    # The parser's own sentence quotes what was sent, which may hold a secret.
    what = "first line" if isinstance(error, BadHttpMethod) or not _LINE.match(line.begin) else "head"
    return web.HTTPBadRequest(text=f"this is no HTTP request: its {what} is malformed")
