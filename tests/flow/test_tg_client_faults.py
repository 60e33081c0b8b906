"""The SDK against everything that a gateway, a proxy or a stranger at its address can do wrong."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.gateway_wire import END, EVENTS, Answer, bytes_of, chunk, gateway_wire, response
from tests.virtual_time import in_virtual_time
from tests.within import within
from tg_client import TgClient
from tg_schema import TgError
from tg_schema.errors import (
    BadRequest,
    ContentFilter,
    IncompleteStream,
    NotFound,
    PeerError,
    ProtocolError,
    RateLimited,
    Timeout,
    TooLarge,
    Unauthorized,
    Unavailable,
)

ONE = b'data: {"response":"one ","end_of_stream":false}\n\n'
LAST = b'data: {"response":"two","end_of_stream":true,"out_token":2}\n\n'
HTML = b"<html><body>nginx secret-host.internal</body></html>"


async def streamed(
    answer: Answer, *, idle: float = 60.0, timeout: float = 10.0, texts: list[str] | None = None
) -> list[str]:
    """The texts of a stream that is answered like this; what came before an error is in `texts`."""
    texts = [] if texts is None else texts
    async with (
        gateway_wire(answer) as wire,
        TgClient(wire.url, idle=idle, timeout=timeout, retries=0) as client,
        client.flow().text_completion_stream("s", "p") as chunks,
    ):
        async for record in chunks:
            texts += [record.response or ""]
    return texts


async def test_a_request_is_what_the_gateway_reads() -> None:
    async with gateway_wire(bytes_of(EVENTS, chunk(LAST), END)) as wire, TgClient(wire.url, token="t-1") as client:
        async with client.flow("a/b c").text_completion_stream("s", "p") as chunks:
            assert [record.response async for record in chunks] == ["two"]
        head, _, body = wire.requests[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /api/v1/flow/a%2Fb%20c/service/text-completion HTTP/1.1\r\n")
        assert b"\r\nAuthorization: Bearer t-1\r\n" in head
        assert b'"system":"s","prompt":"p","streaming":true' in body


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
async def test_a_stream_cut_anywhere(size: int) -> None:
    body = b": keep-alive\n\n" + ONE + b"\r\n: x\r\n" + LAST.replace(b"\n", b"\r\n")
    parts = [chunk(body[start : start + size]) for start in range(0, len(body), size)]
    assert await streamed(bytes_of(EVENTS, *parts, END)) == ["one ", "two"]


async def test_what_follows_the_end_is_not_read() -> None:
    assert await streamed(bytes_of(EVENTS, chunk(LAST + ONE), END)) == ["two"]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([EVENTS, chunk(ONE), END], id="a clean end, too early"),
        pytest.param([EVENTS, chunk(ONE)], id="the connection closed"),
        pytest.param([EVENTS, chunk(ONE), chunk(LAST[:-1]), END], id="half an event"),
        pytest.param([EVENTS.replace(b"Transfer-Encoding: chunked", b"Content-Length: 900"), ONE], id="short body"),
        pytest.param([EVENTS.replace(b"Transfer-Encoding: chunked\r\n", b""), ONE], id="a body without length"),
    ],
)
async def test_a_stream_that_ends_before_its_end(parts: list[bytes]) -> None:
    texts: list[str] = []
    with pytest.raises(IncompleteStream, match="broke off before its end") as raised:
        await streamed(bytes_of(*parts), texts=texts)
    assert texts == ["one "]
    assert raised.value.retryable


async def test_chunks_that_are_none() -> None:
    with pytest.raises((IncompleteStream, ProtocolError)):
        await streamed(bytes_of(EVENTS, chunk(ONE), b"zz\r\n"))


async def test_a_reset_in_mid_stream() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await bytes_of(EVENTS, chunk(ONE))(reader, writer)
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    with pytest.raises(IncompleteStream):
        await streamed(answer)


async def test_an_error_after_chunks() -> None:
    failed = b'event: error\ndata: {"error":{"type":"content-filter","message":"refused"},"end_of_stream":true}\n\n'
    texts: list[str] = []
    with pytest.raises(ContentFilter, match="refused"):
        await streamed(bytes_of(EVENTS, chunk(ONE + failed), END), texts=texts)
    assert texts == ["one "]


@pytest.mark.parametrize(
    "data", [b"no json", b"[]", b'"text"', b"[" * 100_000, b'{"response":7}', b"\xff", b"null", b""]
)
async def test_an_event_that_is_no_record(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a record"):
        await streamed(bytes_of(EVENTS, chunk(b"data: " + data + b"\n\n"), END))


async def test_an_event_without_end() -> None:
    parts = [chunk(b"data: " + b"x" * 1_000_000)] * 9
    with pytest.raises(ProtocolError, match="an event of more than"):
        await streamed(bytes_of(EVENTS, *parts))


@asynccontextmanager
async def hanging(*parts: bytes) -> AsyncIterator[Answer]:
    """Answers that never end, until the block does."""
    over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await bytes_of(*parts)(reader, writer)
        await over.wait()

    yield answer
    over.set()


async def test_silence_in_a_stream() -> None:
    async with hanging(EVENTS, chunk(ONE)) as answer:
        with pytest.raises(Timeout, match=r"silent for 0\.1 s"):
            await streamed(answer, idle=0.1)


@pytest.mark.parametrize(
    "parts", [(), (EVENTS,), (EVENTS, chunk(ONE)), (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",)]
)
async def test_an_answer_that_does_not_come(parts: tuple[bytes, ...]) -> None:
    sentence = r"(no answer|nothing more of the answer) came within 0\.1 s; a longer timeout= waits longer"
    async with hanging(*parts) as answer:
        with pytest.raises(Timeout, match=sentence):
            await streamed(answer, timeout=0.1)


@in_virtual_time
async def test_an_answer_in_flow_is_not_cut() -> None:
    """It takes longer than the timeout, which every single wait keeps."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS)
        for _ in range(15):
            writer.write(chunk(ONE))
            await asyncio.sleep(0.1)
        writer.write(chunk(LAST) + END)

    assert (await streamed(answer, timeout=1.0))[-1] == "two"


@in_virtual_time
async def test_a_slow_reader_is_no_silence() -> None:
    """The clock runs while a record is waited for, and not while its reader does something else."""
    read = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await bytes_of(EVENTS, chunk(ONE))(reader, writer)
        await read.wait()
        await bytes_of(chunk(LAST), END)(reader, writer)

    async with (
        gateway_wire(answer) as wire,
        TgClient(wire.url, timeout=1.0) as client,
        client.flow().text_completion_stream("s", "p") as chunks,
    ):
        await anext(chunks)
        await asyncio.sleep(1.1)
        read.set()
        assert [record.response async for record in chunks] == ["two"]


@in_virtual_time
async def test_comments_keep_a_silent_stream_alive() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS)
        for _ in range(10):
            writer.write(chunk(b": keep-alive\n\n"))
            await asyncio.sleep(0.1)
        writer.write(chunk(LAST) + END)

    assert await streamed(answer, idle=0.5) == ["two"]


async def test_leaving_closes_the_connection() -> None:
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await bytes_of(EVENTS, chunk(ONE))(reader, writer)
        assert await reader.read() == b""
        left.set()

    async with gateway_wire(answer) as wire, TgClient(wire.url) as client:
        async with client.flow().text_completion_stream("", "p") as chunks:
            await anext(chunks)
        await within(1, left.wait())


REFUSALS = [
    ("503 Busy", b'{"error":{"type":"rate-limited","message":"too many"}}', ["Retry-After: 7"], RateLimited, 7.0),
    (
        "429 Slow",
        b'{"error":{"type":"rate-limited","message":"x","retry_after":0.5}}',
        ["Retry-After: 1"],
        RateLimited,
        0.5,
    ),
    ("429 Slow", HTML, ["Retry-After: 3"], RateLimited, 3.0),
    ("429 Slow", HTML, ["Retry-After: Wed, 21 Oct 2026 07:28:00 GMT"], RateLimited, None),
    ("400 Bad", b'{"error":{"type":"their-own","message":"in their words"}}', [], PeerError, None),
    ("401 No", b"", [], Unauthorized, None),
    ("403 No", b"{}", [], Unauthorized, None),
    ("404 No", HTML, [], NotFound, None),
    ("405 No", b'{"error":"text"}', [], NotFound, None),
    ("413 Big", HTML, [], TooLarge, None),
    ("500 Oops", b"[" * 100_000, [], ProtocolError, None),
    ("502 Bad Gateway", HTML, [], Unavailable, None),
    ("503 Busy", b"", ["Retry-After: 2"], Unavailable, 2.0),
    ("504 Late", HTML, [], Timeout, None),
    ("308 Moved", b"", ["Location: https://elsewhere.example/"], ProtocolError, None),
    ("204 Nothing", b"", [], ProtocolError, None),
]


@pytest.mark.parametrize(("status", "body", "headers", "kind", "seconds"), REFUSALS)
async def test_an_answer_that_is_none(
    status: str, body: bytes, headers: list[str], kind: type[TgError], seconds: float | None
) -> None:
    with pytest.raises(kind) as raised:
        await streamed(bytes_of(response(status, body, *headers)))
    assert type(raised.value) is kind
    assert raised.value.retry_after == seconds
    assert "secret-host" not in raised.value.message


async def test_a_refusal_that_breaks_off() -> None:
    """By its head it was HTTP, and asking again makes sense."""
    with pytest.raises(Unavailable, match="ask again"):
        await streamed(bytes_of(b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\n<html>"))


async def test_a_whole_body_larger_than_any_answer() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n"
    with pytest.raises(ProtocolError, match="larger than"):
        await streamed(bytes_of(head, *[b" " * 1_000_000] * 18))


async def test_a_whole_body_that_does_not_end_its_stream() -> None:
    body = b'{"response":"a","end_of_stream":false}'
    with pytest.raises(IncompleteStream):
        await streamed(bytes_of(response("200 OK", body, "Content-Type: application/json")))


@pytest.mark.parametrize(
    "bytes_", [b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"\x00\x01\x02\xff" * 20, b"HTTP/1.1 two OK\r\n\r\n"]
)
async def test_a_stranger_at_the_address(bytes_: bytes) -> None:
    with pytest.raises(ProtocolError, match="does not speak HTTP"):
        await streamed(bytes_of(bytes_))


async def test_a_connection_that_is_closed_without_an_answer() -> None:
    with pytest.raises(Unavailable, match="closed the connection without an answer"):
        await streamed(bytes_of())


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with TgClient(url, retries=0) as client:
            with pytest.raises(Unavailable, match=f"no gateway answers at {url}/: start one with tg-serve"):
                await client.flow().text_completion("", "p")
            with pytest.raises(Unavailable, match="no gateway answers"):
                async with client.socket():
                    pass


@pytest.mark.parametrize(
    "url",
    ["localhost:8888", "ftp://host/", "http://", "http://host:port/", "http://h:99999/", "http://h/?a=1", "http:///"],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(BadRequest, match="must look like http://host:port/") as raised:
        TgClient(url)
    assert raised.value.message.endswith(f'not "{url.partition("?")[0]}"')


@pytest.mark.parametrize("url", ["http://me:canary-1@host/", "ftp://me:canary-1@host/", "http://host/?token=canary-1"])
def test_a_secret_in_the_url(url: str) -> None:
    with pytest.raises(BadRequest) as raised:
        TgClient(url)
    assert "canary" not in raised.value.message


async def test_a_host_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def know_nobody(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", know_nobody)
    async with TgClient("http://gateway.example/", retries=0) as client:
        with pytest.raises(Unavailable, match=r"the host of http://gateway\.example/ cannot be found"):
            await client.flow().text_completion("", "p")
        with pytest.raises(Unavailable, match=r"the host of http://gateway\.example/ cannot be found"):
            async with client.socket():
                pass


@pytest.mark.parametrize("token", ["two words", "new\nline", "Köln"])
def test_a_token_that_no_header_can_carry(token: str) -> None:
    with pytest.raises(BadRequest, match="TOKENGRID_TOKEN") as raised:
        TgClient(token=token)
    assert token not in raised.value.message


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_any_body_is_a_stream_or_an_error_of_the_set(body: bytes) -> None:
    async def ask() -> None:
        try:
            await streamed(bytes_of(EVENTS, chunk(ONE + body) if body else b"", END))
        except TgError as error:
            assert error.message  # noqa: PT017 - any error of the set will do

    asyncio.run(ask())
