"""Load test's far end: an OpenAI-compatible provider in its own process, that stamps each chunk as the kernel takes it.

    python bench/fake_provider.py --port 0        prints its port on the first line

`POST .../chat/completions` streams `--chunks` pieces, `--gap` ms apart on a fixed timetable (a late chunk does not
delay the next); 0 ms is flat out. The prompt may say otherwise: `chunks=64 gap=10 burst=1 thought=1`, where `burst` is
how many chunks share one write, and `thought` makes them an agent's thought, which a short answer follows. Each piece
of text is `<index>:<CLOCK_MONOTONIC in ns> `, stamped right before it is written to the socket, so that the reader of
any number of merged pieces can still tell the added latency of each. A body with `"stream": false` gets one small
answer at once, whole.
`GET /stats` tells what was done so far; `POST /stats` forgets it.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import time
from dataclasses import asdict, dataclass, fields
from typing import cast

import uvloop
from typing_extensions import override

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
EVENT = (
    b'{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1760000000,"model":"bench",'
    b'"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]}'
)
USAGE = (
    b'{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1760000000,"model":"bench","choices":[],'
    b'"usage":{"prompt_tokens":8,"completion_tokens":%d,"total_tokens":%d}}'
)
WHOLE = (
    b'{"id":"chatcmpl-bench","object":"chat.completion","created":1760000000,"model":"bench",'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"logprobs":null,"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":8,"completion_tokens":1,"total_tokens":9}}'
)
NOT_STREAMED = re.compile(rb'"stream":\s*false')
SETTING = re.compile(rb"\b(chunks|gap|burst|thought)=([0-9.]+)")
LENGTH = re.compile(rb"(?i)\r\ncontent-length:\s*(\d+)")
CHUNKED = re.compile(rb"(?i)\r\ntransfer-encoding:\s*chunked")
LARGEST_REQUEST = 8 * 1024 * 1024


def framed(data: bytes) -> bytes:
    """One server-sent event in one HTTP chunk."""
    return b"%x\r\ndata: %s\n\n\r\n" % (len(data) + 8, data)


ROLE = framed(EVENT % (b'{"role":"assistant","content":""}', b"null"))
STOP = framed(EVENT % (b"{}", b'"stop"'))
DONE = framed(b"[DONE]") + b"0\r\n\r\n"
THOUGHT, ANSWER = (
    framed(EVENT % (b'{"content":"%s"}' % text, b"null")) for text in (b"Thought: ", b"\\nFinal Answer: ok")
)
BEFORE, AFTER = (EVENT % (b'{"content":"@"}', b"null")).split(b"@")


@dataclass
class Stats:
    """What the provider has done since it started."""

    requests: int = 0
    active: int = 0
    chunks: int = 0
    finished: int = 0
    left: int = 0
    late_ns: int = 0
    """How far behind the timetable, summed over all writes."""

    def forget(self) -> None:
        """Count from 0 again; streams that run stay active."""
        for field in fields(self):
            if field.name != "active":
                setattr(self, field.name, 0)


@dataclass(frozen=True)
class Plan:
    """What one request gets: how many chunks, how many seconds apart, how many in one write, whether as a thought."""

    chunks: int
    gap: float
    burst: int
    thought: bool = False

    @staticmethod
    def of(body: bytes, default: "Plan") -> "Plan":
        """The default, changed by what the prompt says."""
        said = {name: float(value) for name, value in SETTING.findall(body)}
        gap = said[b"gap"] / 1000 if b"gap" in said else default.gap
        burst = max(1, int(said.get(b"burst", default.burst)))
        return Plan(int(said.get(b"chunks", default.chunks)), gap, burst, bool(said.get(b"thought")))


class Connection(asyncio.Protocol):
    """One client's connection; one request at a time, kept alive between them."""

    def __init__(self, stats: Stats, default: Plan) -> None:
        self.loop = asyncio.get_running_loop()
        self.stats = stats
        self.default = default
        self.received = bytearray()
        self.plan: Plan | None = None
        self.timer: asyncio.Handle | None = None
        self.paused = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self.transport = cast(asyncio.Transport, transport)
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fd = sock.fileno()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The client left; in the middle of its stream or not."""
        if self.plan is not None:
            self.stats.left += 1
            self.ended()

    @override
    def pause_writing(self) -> None:
        """The client reads slower than we write."""
        self.paused = True

    @override
    def resume_writing(self) -> None:
        """The client has caught up."""
        self.paused = False
        if self.plan is not None and self.timer is None:
            self.tick()

    @override
    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        self.received += data
        head, found, rest = self.received.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        size = int(length[1]) if length else 0
        if CHUNKED.search(head):
            # Settings are found between the sizes of chunks too; no client sends a request before it has its answer.
            size = len(rest) if rest.endswith(b"0\r\n\r\n") else LARGEST_REQUEST
        if len(self.received) > LARGEST_REQUEST:
            self.transport.abort()
        elif found and len(rest) >= size and self.plan is None:
            body = bytes(rest[:size])
            self.received = rest[size:]
            self.answer(bytes(head), body)

    def answer(self, head: bytes, body: bytes) -> None:
        """Begin the answer to one whole request."""
        method, path, _ = head.split(b" ", 2)
        if path.endswith(b"/chat/completions") and NOT_STREAMED.search(body):
            self.stats.requests += 1
            self.stats.finished += 1
            self.whole(b"200 OK", WHOLE)
        elif path.endswith(b"/chat/completions"):
            self.stats.requests += 1
            self.stats.active += 1
            self.plan = Plan.of(body, self.default)
            self.index = 0
            self.start = self.loop.time()
            self.pending = HEAD + ROLE + (THOUGHT if self.plan.thought else b"")
            self.tick()
        elif path.endswith(b"/stats"):
            text = json.dumps(asdict(self.stats)).encode()
            if method == b"POST":
                self.stats.forget()
            self.whole(b"200 OK", text)
        elif path.endswith(b"/models"):
            self.whole(b"200 OK", b'{"object":"list","data":[{"id":"bench","object":"model"}]}')
        else:
            self.whole(b"404 Not Found", b'{"error":{"message":"no such path"}}')

    def whole(self, status: bytes, body: bytes) -> None:
        """Answer at once, with JSON."""
        head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        self.transport.write(head + body)

    def tick(self) -> None:
        """Send what is due, and come back for the rest."""
        plan, self.timer = self.plan, None
        if plan is None or self.paused:
            return
        self.stats.late_ns += int((self.loop.time() - self.start - self.index * plan.gap) * 1e9) if plan.gap else 0
        if self.index < plan.chunks:
            self.send(min(plan.burst, plan.chunks - self.index))
        if self.index >= plan.chunks:
            self.finish(plan)
        elif plan.gap:
            self.timer = self.loop.call_at(self.start + self.index * plan.gap, self.tick)
        elif not self.paused:
            self.timer = self.loop.call_soon(self.tick)

    def send(self, count: int) -> None:
        """Write the next chunks, stamped as late as possible."""
        first, self.index = self.index, self.index + count
        self.stats.chunks += count
        head, self.pending = self.pending, b""
        stamp = time.monotonic_ns()
        events = [framed(b"%s%d:%d %s" % (BEFORE, index, stamp, AFTER)) for index in range(first, first + count)]
        self.write(head + b"".join(events))

    def write(self, data: bytes) -> None:
        """Hand bytes to the kernel now; uvloop's own write would wait for the end of the loop's turn."""
        if self.transport.get_write_buffer_size() == 0:
            try:
                data = data[os.write(self.fd, data) :]
            except BlockingIOError:
                pass
            except OSError:
                self.transport.abort()
                return
        if data:
            self.transport.write(data)

    def finish(self, plan: Plan) -> None:
        """Write the end of the stream, and wait for the next request."""
        answer = ANSWER if plan.thought else b""
        self.write(self.pending + answer + STOP + framed(USAGE % (plan.chunks, plan.chunks + 8)) + DONE)
        self.stats.finished += 1
        self.ended()
        if self.received:
            self.loop.call_soon(self.data_received, b"")

    def ended(self) -> None:
        """The stream is over, one way or the other."""
        self.plan = None
        self.stats.active -= 1
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


async def serve(host: str, port: int, default: Plan) -> None:
    """Serve until killed."""
    stats = Stats()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(stats, default), host, port, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="OpenAI-compatible provider for load tests")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 = any free one; printed on the first line")
    parser.add_argument("--chunks", type=int, default=64, help="pieces of text in each answer")
    parser.add_argument("--gap", type=float, default=10.0, help="ms between pieces; 0 = flat out")
    parser.add_argument("--burst", type=int, default=1, help="pieces in one write")
    options = parser.parse_args()
    uvloop.run(serve(options.host, options.port, Plan(options.chunks, options.gap / 1000, options.burst)))


if __name__ == "__main__":
    main()
