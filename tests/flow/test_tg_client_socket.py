"""The SDK's socket against everything that its other end can do wrong."""

import asyncio

import pytest

from tests.fakes.gateway_wire import bytes_of, gateway_wire, response
from tests.fakes.socket_wire import SocketWire
from tg_client import TgClient
from tg_schema import TgError
from tg_schema.errors import (
    IncompleteStream,
    NotFound,
    PeerError,
    ProtocolError,
    RateLimited,
    SlowConsumer,
    Timeout,
    Unauthorized,
    Unavailable,
)

ONE = '{"id":"ID","response":{"response":"one ","end_of_stream":false},"complete":false}'
LAST = '{"id":"ID","response":{"response":"","end_of_stream":true,"out_token":1},"complete":true}'


async def streamed(*frames: str | bytes | None, timeout: float = 10.0, texts: list[str] | None = None) -> list[str]:
    """The texts of a stream whose frames are these."""
    texts = [] if texts is None else texts
    async with (
        SocketWire(frames).listening() as url,
        TgClient(url, timeout=timeout) as client,
        client.socket() as socket,
        socket.flow().text_completion_stream("s", "p") as chunks,
    ):
        async for record in chunks:
            texts += [record.response or ""]
    return texts


async def test_what_is_sent() -> None:
    wire = SocketWire([ONE, LAST])
    async with wire.listening() as url, TgClient(url, token="t-1") as client, client.socket() as socket:
        assert (await socket.flow("f").text_completion("s", "p")).text == "one "
        assert (await socket.flow("f").text_completion("s", "p")).text == "one "
    greeting, *asked = wire.received
    assert greeting == {"type": "auth", "token": "t-1"}
    assert [frame["id"] for frame in asked] == ["req-1", "req-2"]
    assert (asked[0]["service"], asked[0]["flow"]) == ("text-completion", "f")


async def test_leaving_sends_one_cancel_and_finishing_none() -> None:
    wire = SocketWire([ONE])
    async with wire.listening() as url, TgClient(url) as client, client.socket() as socket:
        async with socket.flow().text_completion_stream("s", "p") as chunks:
            await anext(chunks)
        wire.frames = [ONE, LAST]
        await socket.flow().text_completion("s", "p")
        assert [frame["id"] for frame in wire.received if "cancel" in frame] == ["req-1"]


async def test_frames_of_others_are_passed_over() -> None:
    other = ONE.replace("ID", "req-99")
    assert "".join(await streamed(other, '{"complete":true}', '{"type":"news"}', ONE.encode(), LAST)) == ""
    assert "".join(await streamed(other, '{"complete":true}', '{"type":"news"}', ONE, LAST)) == "one "


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ('{"id":"ID","error":{"type":"rate-limited","message":"m"},"complete":true}', RateLimited),
        ('{"id":"ID","error":{"type":"llm-error","message":"m"},"complete":true}', PeerError),
        ('{"id":"ID","error":"m","complete":true}', PeerError),
        ('{"id":"ID","response":{"error":{"type":"timeout","message":"m"}},"complete":true}', Timeout),
        ('{"id":"ID","response":{"response":7},"complete":false}', ProtocolError),
        ('{"id":"ID","response":{"response":"m","end_of_stream":false},"complete":true}', IncompleteStream),
        ('{"id":"ID","complete":true}', IncompleteStream),
        ("no frame", ProtocolError),
        ("[" * 100_000, ProtocolError),
        (None, IncompleteStream),
    ],
)
async def test_what_ends_a_stream(frame: str | None, kind: type[TgError]) -> None:
    texts: list[str] = []
    with pytest.raises(kind) as raised:
        await asyncio.wait_for(streamed(ONE, frame, texts=texts), 5)
    assert type(raised.value) is kind
    assert "".join(texts).startswith("one ")


async def test_the_deadline() -> None:
    with pytest.raises(Timeout, match=r"nothing more of the answer came within 0\.1 s"):
        await streamed(ONE, timeout=0.1)


async def test_a_reader_that_does_not_keep_up_ends_alone() -> None:
    frame = ONE.replace("one ", "x" * 100_000)
    wire = SocketWire([frame] * 20)
    async with wire.listening() as url, TgClient(url) as client, client.socket() as socket:
        async with socket.flow().text_completion_stream("s", "p") as slow:
            await wire.answered.wait()
            wire.frames = [ONE, LAST]
            assert (await socket.flow().text_completion("s", "p")).text == "one "
            with pytest.raises(SlowConsumer):
                async for _ in slow:
                    pass
        assert (await socket.flow().text_completion("s", "p")).text == "one "


@pytest.mark.parametrize(
    ("greeting", "kind"),
    [('{"type":"auth-failed","error":"auth failure"}', Unauthorized), ("hello", ProtocolError), (None, ProtocolError)],
)
async def test_greetings(greeting: str | None, kind: type[TgError]) -> None:
    async with SocketWire([], greeting).listening() as url, TgClient(url) as client:
        with pytest.raises(kind):
            async with client.socket():
                pass


@pytest.mark.parametrize(
    ("status", "kind"),
    [("404 No", NotFound), ("503 Busy", Unavailable), ("401 No", Unauthorized), ("200 OK", ProtocolError)],
)
async def test_a_handshake_that_is_refused(status: str, kind: type[TgError]) -> None:
    answer = bytes_of(response(status, b"", "Retry-After: 4"))
    async with gateway_wire(answer) as wire, TgClient(wire.url, retries=0) as client:
        with pytest.raises(kind) as raised:
            async with client.socket():
                pass
    assert raised.value.retry_after in {4.0, None}


async def test_a_handshake_that_is_redirected_tells_the_token_to_nobody_else() -> None:
    async with gateway_wire(bytes_of(b"")) as other:
        redirect = bytes_of(response("307 Elsewhere", b"", f"Location: {other.url}api/v1/socket"))
        async with gateway_wire(redirect) as wire, TgClient(wire.url, token="canary") as client:
            with pytest.raises(ProtocolError, match="give the URL that it redirects to"):
                async with client.socket():
                    pass
    assert (len(wire.requests), other.requests) == (1, [])


async def test_closing_ends_what_still_runs() -> None:
    async with SocketWire([ONE]).listening() as url, TgClient(url) as client:
        async with client.socket() as socket:
            stream = socket.flow().text_completion_stream("s", "p")
            chunks = await stream.__aenter__()
            await anext(chunks)
        with pytest.raises(IncompleteStream):
            await anext(chunks)
        await stream.__aexit__(None, None, None)
