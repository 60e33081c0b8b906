"""gRPC over our half of HTTP/2: messages in any frames, statuses, deadlines, and answers that wait for their reader."""

import asyncio
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import grpc
import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.envoy.http2_model import ModelPeer
from tests.envoy.http2_peer import MAX_MESSAGE, Http2Peer, call_headers, connected, echo, message, opened
from tests.until import until
from tg_gateway.envoy.grpc_call import MAX_UNSENT_BYTES, GrpcCall, GrpcFault, GrpcStatus, write_status
from tg_gateway.envoy.grpc_server import GrpcServer, serve_grpc
from tg_gateway.envoy.grpc_timeout import read_timeout
from tg_gateway.envoy.http2_frames import DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS, write_frame
from tg_gateway.envoy.http2_stream import STREAM_WINDOW

ECHO = "/test.Echo/Echo"
LIMIT = 1_000


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    marks = [0, *sorted(min(each, len(data)) for each in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(marks)]


async def read_all(call: GrpcCall) -> list[bytes]:
    read = []
    while (body := await call.read()) is not None:
        read.append(body)
    return read


def open_call(limit: int = LIMIT) -> tuple[ModelPeer, GrpcCall]:
    """A call whose bytes come from a peer, and whose messages the test reads."""
    peer = ModelPeer()
    peer.open(1)
    stream = peer.takers[1].stream
    call = GrpcCall(stream, limit)
    stream.receiver = call
    return peer, call


def told(peer: ModelPeer) -> dict[str, str]:
    """What the trailers say, and the head."""
    decoder, said = hpack.Decoder(), dict[str, str]()
    for frame in peer.frames:
        if frame[0] == HEADERS:
            said |= {str(name): str(value) for name, value in decoder.decode(frame[3])}
    return said


@given(
    bodies=st.lists(st.binary(max_size=40), max_size=6),
    cuts=st.lists(st.integers(0, 300), max_size=10),
    ends_apart=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_messages_are_the_same_in_whatever_frames_they_come(
    bodies: list[bytes], cuts: list[int], ends_apart: bool
) -> None:
    peer, call = open_call()
    pieces = cut(b"".join(map(message, bodies)), cuts)
    for piece in pieces[:-1]:
        peer.data(1, piece)
    peer.data(1, pieces[-1], flags=0 if ends_apart else END_STREAM)
    if ends_apart:
        peer.send(write_frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x83"))
    assert asyncio.run(read_all(call)) == bodies
    call.close(GrpcStatus.OK)
    assert told(peer) == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}


@given(rest=st.integers(1, 44), ends_apart=st.booleans())
def test_a_request_that_ends_within_a_message_is_an_error_wherever_it_is_cut(rest: int, ends_apart: bool) -> None:
    peer, _ = open_call()
    sent = message(b"first") + message(bytes(40))[:-rest]
    peer.data(1, sent, flags=0 if ends_apart else END_STREAM)
    if ends_apart:
        peer.send(write_frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x83"))
    assert told(peer)["grpc-status"] == "13"


@pytest.mark.parametrize(("flag", "status"), [(0, None), (1, "12"), (2, "12"), (255, "12")])
def test_the_flag_of_compression(flag: int, status: str | None) -> None:
    peer, call = open_call()
    peer.data(1, bytes((flag,)) + message(b"abc")[1:], flags=END_STREAM)
    assert told(peer).get("grpc-status") == status
    if status is None:
        assert asyncio.run(read_all(call)) == [b"abc"]


@pytest.mark.parametrize(("size", "status"), [(LIMIT, None), (LIMIT + 1, "8"), (2**32 - 1, "8")])
def test_how_large_a_message_may_be(size: int, status: str | None) -> None:
    peer, _ = open_call()
    # The length alone tells: nothing of it has come yet.
    peer.data(1, b"\0" + size.to_bytes(4))
    assert told(peer).get("grpc-status") == status
    assert (1 in peer.connection.streams) == (status is None)


@pytest.mark.parametrize("size", [0, 10, 16_000])
def test_what_waits_to_be_read_holds_the_window_and_what_was_read_does_not(size: int) -> None:
    peer, call = open_call(MAX_MESSAGE)
    body = message(bytes(size)) * (16_384 // (size + 5))
    sent = 0
    while len(body) <= peer.may_send[1] and sent < 3 * STREAM_WINDOW:
        peer.data(1, body)
        sent += len(body)
    # What may wait as whole messages, each of which costs more than its bytes, and a window.
    assert sent <= STREAM_WINDOW * (size + 5) // (size + 64) + STREAM_WINDOW + len(body)
    before = peer.may_send[1]

    async def read() -> None:
        while call.held:
            await call.read()

    asyncio.run(read())
    assert peer.may_send[1] > max(before, STREAM_WINDOW // 2)


def test_large_messages_that_are_not_complete_hold_no_window() -> None:
    peer, call = open_call(8 * STREAM_WINDOW)
    whole = message(bytes(6 * STREAM_WINDOW))
    for piece in cut(whole, list(range(16_000, len(whole), 16_000))):
        peer.data(1, piece)
        assert peer.may_send[1] > STREAM_WINDOW // 4
    assert call.held >= 6 * STREAM_WINDOW


SECONDS = {"2H": 7200.0, "3M": 180.0, "5S": 5.0, "20m": 0.02, "70u": 7e-5, "90n": 9e-8, "99999999S": 99_999_999.0}
WRONG = ("999999999S", "5", "S", "5s", " 5S", "5S ", "-5S", "5.0S", "5h", "")


@pytest.mark.parametrize("value", [*SECONDS, *WRONG])
def test_units_of_deadlines(value: str) -> None:
    found, expected = read_timeout(value.encode()), SECONDS.get(value)
    assert found == (expected if expected is None else pytest.approx(expected))


@given(text=st.text(max_size=60))
def test_a_message_of_a_status_is_read_by_others(text: str) -> None:
    block = write_status(GrpcStatus.INTERNAL, text)
    fields = {str(name): str(value) for name, value in hpack.Decoder().decode(block)}
    encoded = fields.get("grpc-message", "")
    assert len(encoded) <= 120
    # Printable ASCII alone, and a percent sign only before two digits.
    assert all(" " <= each <= "~" for each in encoded)
    assert text.startswith(unquote(encoded, errors="ignore"))
    if len(encoded) < 110:
        assert unquote(encoded) == text


@pytest.mark.parametrize("text", ["100 %", "%41", "a%", "ä%\n", 'quotes "and" \\ back'])
async def test_grpcs_client_reads_what_a_status_says(text: str) -> None:
    async def refuse(_: GrpcCall) -> None:
        raise GrpcFault(GrpcStatus.NOT_FOUND, text)

    server = GrpcServer({"/t/refuse": refuse}, MAX_MESSAGE)
    async with (
        asyncio.timeout(60),
        serve_grpc(server, "127.0.0.1:0", 0) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        ask: Any = channel.unary_unary("/t/refuse")
        call = ask(b"")
        assert await call.details() == text
        assert await call.code() == grpc.StatusCode.NOT_FOUND


async def trailers_of(peer: Http2Peer) -> list[dict[str, str]]:
    heads: list[dict[str, str]] = []
    while not heads or "grpc-status" not in heads[-1]:
        heads.append(peer.fields(await peer.next(HEADERS)))
    return heads


async def test_an_answer_has_one_head_and_its_trailers() -> None:
    server = GrpcServer({ECHO: echo}, MAX_MESSAGE)
    async with asyncio.timeout(60), serve_grpc(server, "127.0.0.1:0", 0) as address, connected(address) as peer:
        await peer.send(opened(1) + write_frame(DATA, END_STREAM, 1, message(b"a") + message(b"b")))
        assert await trailers_of(peer) == [
            {":status": "200", "content-type": "application/grpc"},
            {"grpc-status": "0"},
        ]
        # Without an answer, one head is both.
        await peer.send(opened(3, flags=END_HEADERS | END_STREAM))
        assert await trailers_of(peer) == [{":status": "200", "content-type": "application/grpc", "grpc-status": "0"}]


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_a_call_is_a_post(method: str) -> None:
    server = GrpcServer({ECHO: echo}, MAX_MESSAGE)
    async with asyncio.timeout(60), serve_grpc(server, "127.0.0.1:0", 0) as address, connected(address) as peer:
        block = call_headers(**{":method": method})
        await peer.send(write_frame(HEADERS, END_HEADERS | END_STREAM, 1, block))
        assert (await trailers_of(peer))[-1]["grpc-status"] == "12"


async def test_who_does_not_take_answers_is_sent_no_more_than_some() -> None:
    sent = 0

    async def pour(call: GrpcCall) -> None:
        nonlocal sent
        for _ in range(100):
            await call.send(bytes(10_000))
            sent += 10_000

    server = GrpcServer({"/t/pour": pour}, MAX_MESSAGE)
    closed = write_frame(SETTINGS, 0, 0, b"\x00\x04" + bytes(4))
    async with asyncio.timeout(60), serve_grpc(server, "127.0.0.1:0", 0) as address, connected(address) as peer:
        await peer.send(closed + opened(1, "/t/pour"))
        await peer.next(HEADERS)
        await until(lambda: sent > MAX_UNSENT_BYTES - 20_000)
        # It waits: another call is served meanwhile, and nothing more was sent.
        await peer.send(opened(3, "/t/none"))
        await trailers_of(peer)
        assert sent <= MAX_UNSENT_BYTES
        # Once a window opens, it goes on to its end.
        await peer.send(write_frame(8, 0, 0, (2_000_000).to_bytes(4)) + write_frame(8, 0, 1, (2_000_000).to_bytes(4)))
        assert (await trailers_of(peer))[-1]["grpc-status"] == "0"
        assert sent == 1_000_000


@pytest.mark.parametrize("how", ["too large", "reset", "deadline"])
async def test_the_task_of_a_call_that_is_over_is_cancelled(how: str) -> None:
    over = asyncio.Event()

    async def wait(_: GrpcCall) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    server = GrpcServer({"/t/wait": wait}, MAX_MESSAGE)
    async with asyncio.timeout(60), serve_grpc(server, "127.0.0.1:0", 0) as address, connected(address) as peer:
        more = {"grpc-timeout": "1S"} if how == "deadline" else {}
        await peer.send(write_frame(HEADERS, END_HEADERS, 1, call_headers("/t/wait", **more)))
        await until(lambda: server.calls == 1)
        if how == "too large":
            await peer.send(write_frame(DATA, 0, 1, b"\0" + (MAX_MESSAGE + 1).to_bytes(4)))
        elif how == "reset":
            await peer.send(write_frame(RST_STREAM, 0, 1, bytes(4)))
        await over.wait()
        await until(lambda: not server.calls)


async def test_a_deadline_that_did_not_pass_leaves_nothing() -> None:
    server = GrpcServer({ECHO: echo}, MAX_MESSAGE)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60), serve_grpc(server, "127.0.0.1:0", 0) as address, connected(address) as peer:
        await peer.next(SETTINGS)
        before = sum(not each.cancelled() for each in loop._scheduled)  # type: ignore[attr-defined]
        for number in range(1, 41, 2):
            block = call_headers(**{"grpc-timeout": "10H"})
            await peer.send(write_frame(HEADERS, END_HEADERS | END_STREAM, number, block))
            await trailers_of(peer)
        await until(lambda: not server.calls)
        after = sum(not each.cancelled() for each in loop._scheduled)  # type: ignore[attr-defined]
    assert after <= before
