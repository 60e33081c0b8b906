"""What all streams of one connection hold has a bound, whatever a peer does; small calls go on beside it."""

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

import grpc
import pytest
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from typing_extensions import override

from tests.envoy.http2_peer import BEGINNING, ECHO, MAX_MESSAGE, connected, echo, message, opened
from tests.envoy.scripted_picker import ScriptedPicker
from tests.until import until
from tg_gateway.envoy.asked import Asked
from tg_gateway.envoy.decision import Directed, Refused
from tg_gateway.envoy.grpc_call import GrpcCall
from tg_gateway.envoy.grpc_server import GrpcServer, Method, serve_grpc
from tg_gateway.envoy.http2_connection import CONNECTION_WINDOW, MAX_STREAMS, Http2Connection
from tg_gateway.envoy.http2_frames import DATA, HEADERS, MAX_FRAME_BYTES, RST_STREAM, SETTINGS, write_frame
from tg_gateway.envoy.http2_memory import end_largest
from tg_gateway.envoy.http2_stream import Http2Stream
from tg_gateway.envoy.picker_server import MAX_MESSAGE_BYTES, SERVICE, PickerService

MIB = 1024 * 1024
LIMIT = 16 * MIB
LAG = CONNECTION_WINDOW // 2
"""What may come until it is counted again."""
STREAM_COST = 8 * 1024
"""Bytes of objects of a stream and its task, seen once and rounded up."""
ENDED_COST = 1024
"""The same of what waits to be sent and to be freed of a stream that has ended."""
LAST = 2 * MAX_STREAMS - 1
BEGUN = b"\0" + (2 * MIB).to_bytes(4)
"""A message that will be larger than what is ever sent of it."""
PROCESS = f"/{SERVICE}/Process"
_Mode = processing_mode_pb2.ProcessingMode


async def hold(_: GrpcCall) -> None:
    """Reads nothing and answers nothing."""
    await asyncio.Event().wait()


async def collect(call: GrpcCall) -> None:
    """Keeps all that it reads, and answers when nothing more comes."""
    kept: list[bytes] = []
    call.count_kept = lambda: sum(map(len, kept))
    while (body := await call.read()) is not None:
        kept.append(body)
    await call.send(b"".join(kept))


async def answer(call: GrpcCall) -> None:
    """Sends each message back, and keeps none."""
    while (body := await call.read()) is not None:
        sending, body = call.send(body), b""
        await sending


METHODS: Mapping[str, Method] = {ECHO: echo, "/t/hold": hold, "/t/collect": collect, "/t/answer": answer}
FILLS = {
    "messages that are not complete": ("/t/hold", BEGUN + bytes(MAX_FRAME_BYTES - 5), bytes(MAX_FRAME_BYTES)),
    "messages that nobody reads": ("/t/hold", message(bytes(MAX_FRAME_BYTES - 5)), message(bytes(MAX_FRAME_BYTES - 5))),
    "messages that are kept": ("/t/collect", message(bytes(16_000)), message(bytes(16_000))),
    "answers that are not taken": ("/t/answer", message(bytes(16_000)), message(bytes(16_000))),
}


@contextmanager
def counted_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", FILLS)
async def test_the_most_streams_filled_hold_no_more_than_the_bound(case: str) -> None:
    path, first, more = FILLS[case]
    server = GrpcServer(METHODS, MAX_MESSAGE, LIMIT)
    no_window = write_frame(SETTINGS, 0, 0, b"\x00\x04" + bytes(4))
    async with (
        asyncio.timeout(200),
        serve_grpc(server, "127.0.0.1:0", 0) as address,
        connected(address, BEGINNING + no_window) as peer,
    ):
        reading = asyncio.ensure_future(_read_all(peer.frame))
        numbers = range(1, 2 * MAX_STREAMS - 1, 2)
        with counted_memory():
            for number in numbers:
                await peer.send(opened(number, path))
            await until(lambda: server.calls == len(numbers))
            before, _ = tracemalloc.get_traced_memory()
            assert before < STREAM_COST * MAX_STREAMS
            tracemalloc.reset_peak()
            for number, piece in chain(((number, first) for number in numbers), ((number, more) for number in numbers)):
                await peer.send(write_frame(DATA, 0, number, piece))
            _, peak = tracemalloc.get_traced_memory()
        # Ten times what may be held has been sent.
        assert len(numbers) * (len(first) + len(more)) > 10 * (LIMIT + LAG)
        assert peak - before < LIMIT + LAG + ENDED_COST * len(numbers)
        # The connection serves others.
        await peer.send(opened(LAST, "/t/other"))
        frames = await reading
    assert (HEADERS, LAST) in frames
    assert sum(kind == RST_STREAM for kind, _ in frames) > MAX_STREAMS // 2


async def _read_all(read: Any) -> set[tuple[int, int]]:
    frames = set()
    while (frame := await read()) is not None:
        frames.add((frame[0], frame[2]))
        if frame[0] == HEADERS and frame[2] == LAST:
            break
    return frames


async def test_what_was_held_of_a_call_goes_with_it() -> None:
    server = GrpcServer(METHODS, MAX_MESSAGE)
    async with asyncio.timeout(60), serve_grpc(server, "127.0.0.1:0", 0) as address, connected(address) as peer:
        await peer.send(opened(1))
        await until(lambda: server.calls == 1)
        gc.collect()
        gc.disable()
        try:
            with counted_memory():
                for number in range(3, 2_003, 2):
                    path = ("/t/hold", "/t/collect")[number // 2 % 2]
                    pieces = write_frame(DATA, 0, number, message(bytes(16_000))) * 4 + write_frame(
                        DATA, 0, number, BEGUN
                    )
                    await peer.send(opened(number, path) + pieces + write_frame(RST_STREAM, 0, number, bytes(4)))
                await peer.send(write_frame(DATA, 0, 1, message(b"on")))
                await peer.next(DATA)
                await until(lambda: server.calls == 1)
                now, peak = tracemalloc.get_traced_memory()
        finally:
            gc.enable()
    # 64 MB have come.
    assert now < 2 * MIB
    assert peak < 8 * MIB


async def test_the_largest_calls_end_and_small_ones_go_on() -> None:
    server = GrpcServer(METHODS, MAX_MESSAGE, LIMIT)
    async with (
        asyncio.timeout(60),
        serve_grpc(server, "127.0.0.1:0", 0) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        small: Any = channel.stream_stream(ECHO)()
        large: list[Any] = [channel.stream_stream("/t/collect")() for _ in range(40)]
        with capture_logs() as lines:
            for _ in range(2):
                for call in large:
                    # Those that have ended take no more.
                    with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                        await call.write(bytes(900_000))
                await small.write(b"on")
                assert await small.read() == b"on"
        codes = [await call.code() for call in large if call.done()]
        assert set(codes) == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert 20 <= len(codes) < 40
        assert sum(line["calls"] for line in lines if line["event"] == "picker.calls_ended") >= len(codes)
        for call in large:
            call.cancel()
        small.cancel()
        await until(lambda: not server.calls)


async def test_bodies_that_the_picker_collects_or_that_wait_for_their_decision_count() -> None:
    class Undecided(ScriptedPicker):
        @override
        async def decide(self, asked: Asked) -> Directed | Refused:
            self.asked.append(asked)
            await asyncio.Event().wait()
            raise AssertionError

    picker = Undecided()
    server = GrpcServer({PROCESS: PickerService(picker).process}, MAX_MESSAGE_BYTES, LIMIT)
    async with (
        asyncio.timeout(60),
        serve_grpc(server, "127.0.0.1:0", 0) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        calls: list[Any] = [channel.stream_stream(PROCESS)() for _ in range(30)]
        for number, call in enumerate(calls):
            mode = (_Mode.BUFFERED, _Mode.FULL_DUPLEX_STREAMED)[number % 2]
            config = wire.ProtocolConfiguration(request_body_mode=mode)
            head = wire.ProcessingRequest(request_headers=wire.HttpHeaders(), protocol_config=config)
            body = wire.ProcessingRequest(request_body=wire.HttpBody(body=bytes(900_000)))
            for each in (head, body):
                with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                    await call.write(each.SerializeToString())
        await until(lambda: any(call.done() for call in calls))
        ended = [call for call in calls if call.done()]
        assert {await call.code() for call in ended} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        for call in calls:
            call.cancel()
        await until(lambda: not server.calls)


class Holder:
    """A receiver that holds what the test says."""

    def __init__(self, held: int) -> None:
        self.held = held
        self.ended = False

    def receive(self, data: bytes, ended: bool) -> None:
        """See `Receiver`."""

    def drained(self) -> None:
        """See `Receiver`."""

    def reset(self) -> None:
        """See `Receiver`."""

    def overflow(self) -> None:
        """See `Receiver`."""
        self.ended = True


@given(sizes=st.lists(st.integers(0, 1_000), max_size=30), limit=st.integers(1, 8_000))
def test_no_more_end_than_must_and_the_largest_first(sizes: list[int], limit: int) -> None:
    carrier = Http2Connection(lambda _: None, lambda *_: True, lambda: None)
    streams, holders = [], [Holder(size) for size in sizes]
    for number, holder in enumerate(holders):
        streams.append(Http2Stream(carrier, 2 * number + 1, 0))
        streams[-1].receiver = holder
    end_largest(streams, limit)
    left = [holder.held for holder in holders if not holder.ended]
    ended = [holder.held for holder in holders if holder.ended]
    assert bool(ended) == (sum(sizes) > limit)
    if ended:
        assert sum(left) <= limit - limit // 8 < sum(left) + min(ended)
        assert min(ended) >= max(left, default=0)
