"""Headers that are too large: the call is refused, its neighbours and the compression's state go on, up to a bound."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.envoy.http2_peer import BEGINNING, Http2Peer, call_headers, connected, echo_server, literal, message, opened
from tg_gateway.envoy.http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MAX_FRAME_BYTES,
    RST_STREAM,
    ErrorCode,
    write_frame,
)
from tg_gateway.envoy.http2_headers import MAX_HEADER_BYTES, MAX_READ_BYTES, TOO_LARGE, Fields, HeaderReader

REST_BYTES = sum(len(name) + len(value) + 32 for name, value in hpack.Decoder().decode(call_headers(), raw=True))


def framed(stream: int, block: bytes, flags: int = 0) -> bytes:
    """A block of any size, in as few frames as it takes."""
    pieces = [block[at : at + MAX_FRAME_BYTES] for at in range(0, len(block), MAX_FRAME_BYTES)]
    kinds = [HEADERS] + [CONTINUATION] * (len(pieces) - 1)
    ends = [0] * (len(pieces) - 1) + [END_HEADERS]
    return b"".join(
        write_frame(kind, end | (flags if kind == HEADERS else 0), stream, piece)
        for kind, end, piece in zip(kinds, ends, pieces, strict=True)
    )


def padded(size: int) -> bytes:
    """The block of a call whose headers count for `size` bytes."""
    more, rest = b"", size - REST_BYTES
    while rest:
        # Each field counts for 32 bytes and its name.
        take = min(rest, 150) if rest >= 150 + 33 or rest <= 150 else rest - 33
        more += literal("x", "v" * (take - 33))
        rest -= take
    return call_headers() + more


async def finish_call(peer: Http2Peer, stream: int) -> None:
    await peer.send(write_frame(DATA, END_STREAM, stream, message(b"on")))
    assert (await peer.next(DATA))[2:] == (stream, message(b"on"))


@pytest.mark.parametrize(("size", "status"), [(MAX_HEADER_BYTES, None), (MAX_HEADER_BYTES + 1, "8")])
async def test_a_call_with_too_large_headers_is_refused_and_the_others_go_on(size: int, status: str | None) -> None:
    async with asyncio.timeout(60), echo_server() as (server, address), connected(address) as peer:
        await peer.send(opened(1) + framed(3, padded(size)))
        if status is None:
            await finish_call(peer, 3)
        else:
            told = peer.fields(await peer.next(HEADERS))
            assert (told["grpc-status"], told[":status"]) == (status, "200")
            assert str(MAX_HEADER_BYTES) in told["grpc-message"]
            assert (await peer.next(RST_STREAM))[2:] == (3, bytes(4))
            assert server.calls == 1
        await finish_call(peer, 1)


async def test_the_compression_stays_in_step_behind_headers_that_are_too_large() -> None:
    table = hpack.Encoder()
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/test.Echo/Echo"),
        ("content-type", "application/grpc"),
    ]
    large = [*fields, ("x-kept", "in the table"), *((f"x-{at}", "v" * 3_000) for at in range(12))]
    async with asyncio.timeout(60), echo_server() as (_, address), connected(address) as peer:
        await peer.send(framed(1, table.encode(large)))
        assert peer.fields(await peer.next(HEADERS))["grpc-status"] == "8"
        # Most of this block means what the last one has put into the table.
        await peer.send(framed(3, table.encode([*fields, ("x-11", "v" * 3_000)])))
        await finish_call(peer, 3)


async def test_too_large_trailers_end_their_call_alone() -> None:
    async with asyncio.timeout(60), echo_server() as (_, address), connected(address) as peer:
        await peer.send(opened(1) + opened(3) + framed(1, padded(MAX_HEADER_BYTES + 1), END_STREAM))
        assert (await peer.next(RST_STREAM))[2:] == (1, int(ErrorCode.ENHANCE_YOUR_CALM).to_bytes(4))
        await finish_call(peer, 3)


async def test_headers_beyond_what_is_read_end_the_connection() -> None:
    # As decoded, and as encoded.
    bomb = b"\x40\x01x\x7f\xb9\x16" + bytes(3_000) + b"\xbe" * (MAX_READ_BYTES // 3_033 + 1)
    for block in (padded(MAX_READ_BYTES + 1), bomb, bytes(MAX_READ_BYTES + 1)):
        sent = BEGINNING + framed(1, block)
        async with asyncio.timeout(60), echo_server() as (_, address), connected(address, sent) as peer:
            assert await peer.goaway() == ErrorCode.ENHANCE_YOUR_CALM


async def test_grpcs_client_is_told_and_its_channel_goes_on() -> None:
    async with asyncio.timeout(60), echo_server() as (server, address), grpc.aio.insecure_channel(address) as channel:
        ask: Any = channel.unary_unary("/test.Echo/Echo")
        assert await ask(b"on") == b"on"
        call = ask(b"on", metadata=[(f"x-{at}", "v" * 1_000) for at in range(40)])
        assert await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await ask(b"on") == b"on"
        assert len(server.connections) == 1


def read_all(blocks: Sequence[bytes], cuts: Sequence[int]) -> list[Fields]:
    reader, read = HeaderReader(), []
    for number, block in enumerate(blocks):
        cut = min(cuts[number % len(cuts)], len(block))
        found = reader.begin(0, 2 * number + 1, block[:cut]) or reader.proceed(END_HEADERS, block[cut:])
        assert found is not None
        read.append(found[0])
    return read


@given(
    sizes=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 200), min_size=1, max_size=4),
)
@settings(max_examples=20, deadline=None)
def test_blocks_of_any_sizes_are_read_as_another_decoder_reads_them(sizes: list[int], cuts: list[int]) -> None:
    table, other, blocks, expected = hpack.Encoder(), hpack.Decoder(max_header_list_size=2**30), [], []
    for number, size in enumerate(sizes):
        fields = [("a", "b"), (f"n{number % 3}", str(size)), *((f"x{at}", "v" * 2_000) for at in range(10 * size))]
        blocks.append(table.encode(fields))
        whole = other.decode(blocks[-1], raw=True)
        is_large = sum(len(name) + len(value) + 32 for name, value in whole) > MAX_HEADER_BYTES
        expected.append(TOO_LARGE if is_large else dict(whole))
    assert read_all(blocks, cuts) == expected
