"""HTTP's chunks in any split, and what aiohttp's parser makes of the same bytes."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import pytest
import uvloop
from aiohttp import ClientPayloadError, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpResponseParser
from hypothesis import example, given
from hypothesis import strategies as st
from typing_extensions import override

from tg_base.llm.http.chunk_decoder import MAX_TINY_CHUNKS, ChunkDecoder
from tg_base.llm.http.connections import READ_BYTES, Handler
from tg_schema.errors import IncompleteStream

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TEXT = b"data: a word, and what else an event has\n\n"
CHUNK = b"%x\r\n%s\r\n" % (len(TEXT), TEXT)
END = b"0\r\n\r\n"

pieces = st.lists(
    st.one_of(
        st.just(CHUNK),
        st.binary(min_size=1, max_size=40).map(lambda data: b"%x\r\n%s\r\n" % (len(data), data)),
        st.binary(min_size=1, max_size=40).map(lambda data: b"%04X\r\n%s\r\n" % (len(data), data)),
        st.sampled_from([b"5;a=b\r\nhello\r\n", b"5 \r\nhello\r\n", b"5\nhello\n", b"5\r\nhello\n"]),
        st.sampled_from([b"0x5\r\nhello\r\n", b"5\r\nhello!\r\n", b"-5\r\n", b"+5\r\nhello\r\n", b"\r\n", b"5\r6\r\n"]),
    ),
    max_size=6,
).map(b"".join)


class Parser:
    """aiohttp's, behind the head of an answer in chunks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        protocol = BaseProtocol(loop)
        self._parser = protocol._parser = HttpResponseParser(protocol, loop, 2**16, read_until_eof=True)
        ((_, self.body),), _, _ = self._parser.feed_data(HEAD)
        assert isinstance(self.body, StreamReader)

    def feed(self, data: bytes) -> bytes:
        self._parser.feed_data(data)
        return self.body.read_nowait()


def in_parts(data: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    places = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return (data[start:end] for start, end in pairwise(places) if end > start)


def by_aiohttp(data: bytes) -> tuple[bytes, bool] | None:
    """The data, and whether the body ended; None for what is no body."""
    parser = Parser(LOOP)
    try:
        return parser.feed(data), parser.body.is_eof()
    except HttpProcessingError:
        return None


def by_ours(parts: Iterable[bytes]) -> tuple[bytes, bool] | None:
    """The decoder first, without any parser, and from what is not plain on a parser that has not seen the beginning."""
    handler, found = Handler(LOOP, memoryview(bytearray(READ_BYTES))), b""
    handler.set_response_params(read_until_eof=True, auto_decompress=False, read_bufsize=2**16)
    handler.data_received(HEAD)
    body = handler._buffer[0][0][1]
    assert handler._parser is None
    try:
        for part in parts:
            handler.data_received(part)
            found += body.read_nowait()
    except (ClientPayloadError, HttpProcessingError):
        return None
    return found, body.is_eof()


class Listened:
    """A body that is listened to while nothing of it waits to be read; `keep` gets both, in their order."""

    def __init__(self, keep: Callable[[bytes], object]) -> None:
        self._keep = keep
        self._handler = Handler(LOOP, memoryview(bytearray(READ_BYTES)))
        self._handler.transport = Connected()
        self._handler.set_response_params(read_until_eof=True, auto_decompress=False, read_bufsize=2**16)
        self._handler.data_received(HEAD)
        self.body = self._handler._buffer[0][0][1]
        self.body.listen(self._take)
        self._read = self.body.take()

    def _take(self, data: bytes) -> bytes:
        self._keep(data)
        return b""

    def feed(self, part: bytes) -> None:
        self._handler.data_received(part)
        while self._read.done() and (data := self._read.result()):
            self._keep(data)
            self._read = self.body.take()


class Connected(asyncio.Transport):
    @override
    def abort(self) -> None:
        """A body that cannot be read ends its connection."""

    @override
    def close(self) -> None:
        """As abort."""


def by_listener(parts: Iterable[bytes]) -> tuple[bytes, bool] | None:
    found = list[bytes]()
    listened = Listened(found.append)
    try:
        for part in parts:
            listened.feed(part)
    except IncompleteStream:
        return None
    return b"".join(found), listened.body.is_eof()


LOOP = uvloop.new_event_loop()


@given(pieces, st.sampled_from([b"", END, b"0\r\nX-One: 1\r\n\r\n", b"1"]), st.lists(st.integers(0, 400), max_size=8))
@example(CHUNK * 3, END, [])
@example(CHUNK * 3, END, [len(CHUNK), 2 * len(CHUNK)])
@example(b"5\r\nhello\n", END, [])
@example(b"1\r\n:\r\n" * 2 * MAX_TINY_CHUNKS, END, [])
@example(b"ffffffffffff\r\nhello", b"", [])
def test_any_split_gives_what_aiohttp_reads(data: bytes, end: bytes, cuts: list[int]) -> None:
    assert by_ours(in_parts(data + end, cuts)) == by_aiohttp(data + end)
    assert by_listener(in_parts(data + end, cuts)) == by_aiohttp(data + end)


def test_whole_chunks_are_read_here_and_the_end_is_not() -> None:
    decoder = ChunkDecoder()
    for _ in range(2 * MAX_TINY_CHUNKS):
        assert decoder.feed(CHUNK) == TEXT
    assert decoder.rest is None
    assert (decoder.feed(CHUNK[:10]), decoder.feed(CHUNK[10:] + CHUNK + END)) == (TEXT[:6], TEXT[6:] + TEXT)
    assert decoder.rest == END


def test_many_tiny_chunks_are_left_to_the_parser() -> None:
    """Its reader counts chunks, so that a body of them does not fill memory with objects, or a turn with their work."""
    decoder = ChunkDecoder()
    assert decoder.feed(b"1\r\n:\r\n" * 10_000) == b":" * MAX_TINY_CHUNKS
    assert decoder.rest == b"1\r\n:\r\n" * (10_000 - MAX_TINY_CHUNKS)


@pytest.mark.parametrize("begun", [b"-", b"G", b"0x", b"ffffffff", b"\r"])
def test_what_is_no_size_is_told_at_once(begun: bytes) -> None:
    decoder = ChunkDecoder()
    assert (decoder.feed(CHUNK + begun), decoder.rest) == (TEXT, begun)
