"""A connection's parser that exists only within a request: any split of any requests is read as aiohttp reads it."""

from collections.abc import Iterable
from typing import Any

import uvloop
from aiohttp import web
from aiohttp.http import HttpProcessingError, HttpRequestParser
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.test_chunk_decoder import in_parts
from tg_gateway.http_connections import RestingParser

LOOP = uvloop.new_event_loop()
GET = b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /v1 HTTP/1.1\r\nHost: a\r\nX-Key: k\r\nContent-Length: 5\r\n\r\nhello"
TRICKY = b"POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab\r\n\r\ncde"
CHUNKED = b"POST /v1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
BROKEN = b"GET /\r\n\r\n"
requests = st.lists(
    st.sampled_from([GET, POST, TRICKY, CHUNKED, b"\r\n" + GET, BROKEN, b"HEAD / HTTP/1.0\r\n\r\n"]), max_size=6
).map(b"".join)


async def _refuse(request: web.BaseRequest) -> web.StreamResponse:
    raise AssertionError("nothing is answered here")


def connection() -> web.RequestHandler:
    return web.Server(_refuse, loop=LOOP, auto_decompress=False)()


def read(parser: HttpRequestParser | RestingParser, parts: Iterable[bytes]) -> list[object]:
    """What the requests are, with their bodies, and whether one was refused."""
    found, bodies = list[Any](), list[Any]()
    try:
        for part in parts:
            for message, body in parser.feed_data(part)[0]:
                found.append((message.method, message.path, message.should_close, dict(message.headers)))
                bodies.append(body)
                parser.message_consumed()
    except HttpProcessingError:
        found.append("refused")
    return [*found, *((body.read_nowait(), body.is_eof()) for body in bodies)]


@given(requests, st.lists(st.integers(0, 300), max_size=6))
# The second read begins with the last byte of a head, and ends in the next request, as far behind the end of the first
# one as a line within its body would let it seem whole.
@example(TRICKY + GET, [TRICKY.index(b"\r\n\r\n") + 3, len(TRICKY) + 6])
@example(POST * 3, [len(POST), 2 * len(POST)])
def test_any_split_is_read_as_by_aiohttp(data: bytes, cuts: list[int]) -> None:
    theirs = HttpRequestParser(connection(), LOOP, 2**16, auto_decompress=False)
    parts = list(in_parts(data, cuts))
    assert read(RestingParser(connection()), parts) == read(theirs, parts)


def test_it_keeps_nothing_of_a_request_that_has_come_whole() -> None:
    parser = RestingParser(connection())
    for _ in range(2):
        ((message, _),), _, _ = parser.feed_data(POST)
        assert message.raw_headers == ()
        assert parser._parser is None
    parser.feed_data(POST + GET[:10])
    assert parser._parser is not None
