"""A connection's parser that exists only within a request: any split of any requests is read as aiohttp reads it."""

from collections.abc import Iterable
from typing import Any

import pytest
import uvloop
from aiohttp import web
from aiohttp.http import HttpProcessingError, HttpRequestParser
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.test_chunk_decoder import in_parts
from tg_gateway.http.unreadable_head import UnreadableHead
from tg_gateway.http_connections import RestingParser

LOOP = uvloop.new_event_loop()
GET = b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /v1 HTTP/1.1\r\nHost: a\r\nX-Key: k\r\nContent-Length: 5\r\n\r\nhello"
TRICKY = b"POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab\r\n\r\ncde"
CHUNKED = b"POST /v1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
ZEROS = POST.replace(b"Length: 5", b"Length: " + b"0" * 5_000 + b"5")
LAST = GET.replace(b"Host", b"Connection: close\r\nHost")
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
                if isinstance(message.headers, UnreadableHead):
                    raise HttpProcessingError
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
# More digits than `int` takes.
@example(ZEROS + GET, [len(ZEROS) - 2, len(ZEROS)])
@example(LAST + GET, [len(LAST)])
# What does not end with its read is followed in the same one.
@example(POST + GET, [len(POST) - 2])
def test_any_split_is_read_as_by_aiohttp(data: bytes, cuts: list[int]) -> None:
    theirs = HttpRequestParser(connection(), LOOP, 2**16, auto_decompress=False)
    parts = list(in_parts(data, cuts))
    assert read(RestingParser(connection()), parts) == read(theirs, parts)


@pytest.mark.parametrize("request_", [GET, POST, TRICKY, ZEROS])
@pytest.mark.parametrize("behind_head", [0, 2, 5])
def test_it_keeps_nothing_of_a_request_that_has_come_whole(request_: bytes, behind_head: int) -> None:
    parser = RestingParser(connection())
    end = request_.index(b"\r\n\r\n") + 4
    for _ in range(2):
        ((message, body),), _, _ = parser.feed_data(request_[: end + behind_head])
        assert message.raw_headers == ()
        for at in range(end + behind_head, len(request_)):
            assert parser._parser is not None
            parser.feed_data(request_[at : at + 1])
        assert body.is_eof()
        assert parser._parser is parser._payload is None


def test_it_waits_for_what_a_full_reader_holds_back() -> None:
    handler, body = connection(), b"x" * 2**20
    parser = RestingParser(handler)
    # A reader that is full stops the handler's parser.
    handler._parser = parser  # type: ignore[assignment]
    ((_, reader),), _, _ = parser.feed_data(POST.replace(b"5\r\n\r\nhello", b"%d\r\n\r\n" % len(body)) + body)
    assert not reader.is_eof()
    assert parser._parser is not None
    assert reader.read_nowait() == body
    assert reader.is_eof()
    assert parser._parser is None


@pytest.mark.parametrize("data", [CHUNKED, POST + GET[:10], GET[:10], LAST])
def test_it_stays_where_it_alone_knows_what_may_come_next(data: bytes) -> None:
    parser = RestingParser(connection())
    parser.feed_data(data)
    assert parser._parser is not None
