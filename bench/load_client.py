"""Load test's near end: opens streams at one door and tells the added latency of every chunk.

    python bench/load_client.py http://127.0.0.1:8888/ --door sse --streams 64 --chunks 64 --gap 10

The provider (`fake_provider.py`) writes `<index>:<ns>` into each chunk right before the kernel takes it; this client
looks for these stamps in the raw bytes of the connection, so merged chunks count one by one and no HTTP library stands
in the measurement. Prints one JSON object.
"""

import argparse
import asyncio
import base64
import json
import os
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import cast
from urllib.parse import urlsplit

import uvloop
from typing_extensions import override

STAMP = re.compile(rb'(\d+):(\d{9,})(?=[ "])')
END = re.compile(
    rb'"end_of_(?:stream|dialog)":\s*true|\[DONE\]|^event: message_stop$|"response\.completed"'
    rb'|"text":"","finish_reason":"|"generated_text":"|"done":true',
    re.MULTILINE,
)
REPEAT = re.compile(rb'response\.output_text\.done|"generated_text":"')
"""From here on the protocol says again what it has said."""
ERROR = re.compile(rb'"error":\s*(?:\{[^}]*\}|"[^"]*")|HTTP/1\.1 [45]\d\d')
AGENTS = {"agent": "/api/v1/agent", "agent-text": "/api/v1/flow/text/service/agent"}
"""Doors that lead to an agent, whose thoughts are measured."""
DOORS = ("sse", "websocket", "responses", "anthropic", "lmtp", "completions", "tgi", "lmi", "openai", "mlc", "ollama")
"""The others, by the protocols' names."""
TAIL = 64
"""Bytes kept between reads, in case a stamp or an end is cut."""


def make_request(door: str, prompt: str) -> tuple[str, dict[str, object]]:
    """Path and JSON of the request for a stream at a door."""
    turns = [{"role": "user", "content": prompt}]
    chat: dict[str, object] = {"model": "bench", "messages": turns, "stream": True}
    long = {"mode": "text", "stream_id": 1, "max_tokens": 100_000}
    requests: dict[str, tuple[str, dict[str, object]]] = {
        "openai": ("/v1/chat/completions", chat),
        "mlc": ("/mlc/v1/chat/completions", chat),
        "ollama": ("/api/chat", chat),
        "anthropic": ("/v1/messages", {**chat, "max_tokens": 100_000}),
        "completions": ("/v1/completions", {"model": "bench", "prompt": prompt, "stream": True}),
        "responses": ("/v1/responses", {"model": "bench", "input": prompt, "stream": True, "store": False}),
        "lmtp": ("/lmtp", {"model": "bench", "prompt": turns, **long}),
        "tgi": ("/generate_stream", {"inputs": prompt}),
        "lmi": ("/invocations", {"inputs": prompt, "stream": True, "parameters": {"max_new_tokens": 100_000}}),
    }
    if door in AGENTS:
        return AGENTS[door], {"question": f"{prompt} thought=1", "streaming": True}
    native: dict[str, object] = {"system": "", "prompt": prompt, "streaming": True}
    return requests.get(door, ("/api/v1/text-completion", native))


def post(host: str, path: str, body: bytes) -> bytes:
    """The request that has this body."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def handshake(host: str, path: str = "/api/v1/socket") -> bytes:
    """The request that opens a WebSocket (RFC 6455, 4.1)."""
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def masked(text: bytes) -> bytes:
    """A client's text frame (RFC 6455, 5.2), with the zero mask, which leaves the payload as it is."""
    size = len(text)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x81" + length + b"\0\0\0\0" + text


@dataclass
class Stream:
    """What one stream saw."""

    asked_ns: int = 0
    first_ns: int = 0
    all_begun_ns: int = 0
    ended_ns: int = 0
    latencies: list[int] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    next: int = 0
    missing: int = 0
    repeated: int = 0
    error: str = ""

    @property
    def steady(self) -> list[int]:
        """Latencies of what was written after every stream beside it had its first chunk."""
        return [late for late, stamp in zip(self.latencies, self.stamps, strict=True) if stamp >= self.all_begun_ns]

    def saw(self, index: int, stamp: int, now: int) -> None:
        """One chunk has come."""
        if not self.first_ns:
            self.first_ns = now
        self.latencies.append(now - stamp)
        self.stamps.append(stamp)
        if index < self.next:
            self.repeated += 1
        else:
            self.missing += index - self.next
            self.next = index + 1


class Connection(asyncio.Protocol):
    """One connection with one stream on it."""

    def __init__(self, host: str, door: str, prompt: str, done: asyncio.Future[Stream]) -> None:
        self._done = done
        self._stream = Stream()
        self._rest = b""
        self._repeats = False
        self._later = b""
        path, body = make_request(door, prompt)
        if door == "websocket":
            envelope = {"id": "1", "service": "text-completion", "flow": "default", "request": body}
            self._now = handshake(host)
            self._later = masked(b'{"type":"auth","token":""}') + masked(json.dumps(envelope).encode())
        elif door == "lmtp":
            self._now = handshake(host, path)
            self._later = masked(b"GENERATE " + json.dumps(body).encode())
        else:
            self._now = post(host, path, json.dumps(body).encode())

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask(self._now)

    def _ask(self, data: bytes) -> None:
        self._stream.asked_ns = time.monotonic_ns()
        self._transport.write(data)

    @override
    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if self._later and b"\r\n\r\n" in data:
            later, self._later = self._later, b""
            self._ask(later)
        data = self._rest + data
        position = 0
        repeated = REPEAT.search(data)
        for match in () if self._repeats else STAMP.finditer(data, 0, repeated.start() if repeated else len(data)):
            position = match.end()
            self._stream.saw(int(match[1]), int(match[2]), now)
        self._repeats = self._repeats or repeated is not None
        self._rest = data[max(position, len(data) - TAIL) :]
        if found := ERROR.search(data):
            self._finish(found[0].decode(errors="replace"))
        elif END.search(data):
            self._finish("")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._finish("connection closed before the end")

    def _finish(self, error: str) -> None:
        if not self._done.done():
            self._stream.ended_ns = time.monotonic_ns()
            self._stream.error = error
            self._done.set_result(self._stream)
            self._transport.close()


@dataclass(frozen=True)
class Result:
    """One run. Times in milliseconds; `missing` counts chunks that never came.

    `steady` leaves out what the provider wrote before every stream had its first chunk.
    """

    streams: int
    chunks: int
    seconds: float
    chunks_per_second: float
    first_p50: float
    first_p99: float
    added_p50: float
    added_p99: float
    added_max: float
    steady_p50: float
    steady_p99: float
    missing: int
    repeated: int
    errors: list[str]


def percentile(values: list[int], share: float) -> float:
    """In milliseconds, of nanoseconds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6 if ordered else float("nan")


def summary(streams: list[Stream], chunks: int) -> Result:
    """What all streams of a run saw together."""
    latencies = [latency for stream in streams for latency in stream.latencies]
    steady = [latency for stream in streams for latency in stream.steady]
    firsts = [stream.first_ns - stream.asked_ns for stream in streams if stream.first_ns]
    seconds = (max(s.ended_ns for s in streams) - min(s.asked_ns for s in streams)) / 1e9
    return Result(
        streams=len(streams),
        chunks=len(latencies),
        seconds=seconds,
        chunks_per_second=len(latencies) / seconds,
        first_p50=percentile(firsts, 0.5),
        first_p99=percentile(firsts, 0.99),
        added_p50=percentile(latencies, 0.5),
        added_p99=percentile(latencies, 0.99),
        added_max=percentile(latencies, 1.0),
        steady_p50=percentile(steady, 0.5),
        steady_p99=percentile(steady, 0.99),
        missing=sum(stream.missing + chunks - stream.next for stream in streams),
        repeated=sum(stream.repeated for stream in streams),
        errors=sorted({stream.error for stream in streams if stream.error}),
    )


async def run(url: str, door: str, prompt: str, *, streams: int, limit: float, spread: float) -> list[Stream]:
    """Open so many streams, spread over so many seconds, and read them to their ends."""
    loop = asyncio.get_running_loop()
    target = urlsplit(url)
    host, port = target.hostname or "127.0.0.1", target.port or 80

    async def one(number: int) -> Stream:
        await asyncio.sleep(spread * number / streams)
        done: asyncio.Future[Stream] = loop.create_future()
        factory: Callable[[], Connection] = lambda: Connection(f"{host}:{port}", door, prompt, done)  # noqa: E731
        await loop.create_connection(factory, host, port)
        try:
            return await asyncio.wait_for(done, limit)
        except TimeoutError:
            return Stream(asked_ns=time.monotonic_ns(), ended_ns=time.monotonic_ns(), error="hung")

    seen = await asyncio.gather(*(one(number) for number in range(streams)))
    for stream in seen:
        stream.all_begun_ns = max(each.first_ns for each in seen)
    return seen


def main() -> None:
    """Read the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("url")
    parser.add_argument("--door", choices=[*DOORS, *AGENTS], default="sse")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--gap", type=float, default=10.0, help="milliseconds")
    parser.add_argument("--rounds", type=int, default=1, help="the same again, added to the same result")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one stream")
    args = parser.parse_args()
    prompt = f"chunks={args.chunks} gap={args.gap:g}"
    spread = args.gap / 1000 if args.streams > 1 else 0.0
    results: list[Stream] = []
    for _ in range(args.rounds):
        results += uvloop.run(run(args.url, args.door, prompt, streams=args.streams, limit=args.limit, spread=spread))
    print(
        json.dumps(
            asdict(summary(results, args.chunks))
            | {
                "ttft_mean": statistics.fmean(
                    [(s.first_ns - s.asked_ns) / 1e6 for s in results if s.first_ns] or [float("nan")]
                )
            }
        )
    )


if __name__ == "__main__":
    main()
