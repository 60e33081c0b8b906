"""The longest time for which one request of 10 MB holds up the event loop, and so everybody's chunks.

    python -m bench.large_bodies                    medians of three, every door and kind (about four minutes)
    python -m bench.large_bodies --provider anthropic --doors messages

Gateway and processor share this process and its one event loop, with the memory bus; the client and the provider's
server are processes of their own. A probe takes its turn in each round of the loop. A hold
is the CPU time of the loop's thread between two of its turns, so that a busy machine does not count. Each cell is
"parsed here / apart": all in the loop's process, and large requests in worker processes, one after the other.
"""

import argparse
import asyncio
import base64
import json
import os
import re
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

import structlog
import uvloop

from bench.child import Child, listen, say
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import Config, GatewayConfig, TextCompletionConfig
from tg_base.runtime import MAX_QUICK_BYTES
from tg_base.server import Processor, processor
from tg_flow.providers import open_provider
from tg_gateway.app import Gateway
from tg_gateway.http import handlers

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
SIZE_BYTES = 10_000_000
SENTENCE = 'the quick brown fox, jumps "over" the lazy dog.\n'
NEVER = 2**40
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
ANSWERS = {
    "openai": b'data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}],"model":"m"}\n\n'
    b"data: [DONE]\n\n",
    "anthropic": b'event: message_start\ndata: {"type":"message_start","message":{"model":"m","usage":{}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":"ok"}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
}
"""What the server of each provider says to everything."""
Turn = dict[str, Any]


def text(size: int) -> str:
    """A text of that many characters."""
    return (SENTENCE * (size // len(SENTENCE) + 1))[:size]


def turns(count: int) -> list[Turn]:
    """A conversation of that many messages, with 10 MB together."""
    said = text(SIZE_BYTES // count - 40)
    return [{"role": ("user", "assistant")[number % 2], "content": said} for number in range(count - 1)] + [
        {"role": "user", "content": "go on"}
    ]


def image(door: str) -> list[Turn]:
    """A picture of 7.5 MB, as 10 MB of base64."""
    data = base64.b64encode(os.urandom(SIZE_BYTES * 3 // 4)).decode()
    url = f"data:image/png;base64,{data}"
    part: Turn = {"type": "image_url", "image_url": {"url": url}}
    if door == "responses":
        part = {"type": "input_image", "image_url": url}
    if door == "messages":
        part = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    return [{"role": "user", "content": [part]}]


def tools(door: str) -> list[Turn]:
    """5,000 tools of 2 KB."""
    properties = {f"field_{number}": {"type": "string", "description": text(180)} for number in range(8)}
    schema = {"type": "object", "properties": properties}
    made = []
    for number in range(5000):
        named = {"name": f"tool_{number}", "description": text(200)}
        flat = {"type": "function", **named, "parameters": schema}
        nested = {"type": "function", "function": {**named, "parameters": schema}}
        made.append({"responses": flat, "chat": nested, "messages": {**named, "input_schema": schema}}[door])
    return made


KINDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "one text": lambda door: {"turns": [{"role": "user", "content": text(SIZE_BYTES)}]},
    "one text, not ASCII": lambda door: {"turns": [{"role": "user", "content": "Größe, 漢字. " * (SIZE_BYTES // 19)}]},
    "an image": lambda door: {"turns": image(door)},
    "2,000 messages": lambda door: {"turns": turns(2000)},
    "30,000 messages": lambda door: {"turns": turns(30_000)},
    "5,000 tools": lambda door: {"turns": turns(1)[-1:], "tools": tools(door)},
}


def body(door: str, kind: str) -> bytes:
    """A request of this kind at this door."""
    made = KINDS[kind](door)
    made["input" if door == "responses" else "messages"] = made.pop("turns")
    if door == "messages":
        made["max_tokens"] = 100
    return json.dumps({"model": "m", "stream": True, **made}, ensure_ascii=False).encode()


class Probe:
    """Takes a turn in each round of the loop."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        """Until it is cancelled."""
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest, before = max(self.longest, now - before), now


class Pipeline:
    """Gateway and processor on the memory bus, and a client.

    Attributes:
        url: of the gateway.
    """

    def __init__(self, url: str, client: Child) -> None:
        self.url = url
        self._client = client

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, provider: str = "openai") -> AsyncIterator[Self]:
        """With a provider of `ANSWERS`, whose server has this URL, or with one that needs none."""
        config = Config(flows={"default": {"text-completion": TextCompletionConfig(model="m")}})
        routes, bus = config.routes("text-completion"), MemoryBus()
        options = {"base_url": url, "key_variable": ""} if url else {}
        service = await open_provider(provider, "m", options)
        async with (
            Processor(bus, config.topics, service, routes, models=("m",)),
            Requestor(bus, config.topics, queues=(routes[0].request,)) as requestor,
            Gateway(GatewayConfig(port=0, drain=0.1), requestor, routes) as gateway,
        ):
            with Child("bench.large_bodies", "client") as client:
                yield cls(gateway.url, client)
        await bus.aclose()

    async def ask(self, path: str, body: bytes, count: int = 1, answers: tuple[int, ...] = (200,)) -> None:
        """Send a request that many times, one after the other, and read the answers to their ends."""
        with tempfile.NamedTemporaryFile(prefix="tokengrid-bench-") as file:
            file.write(body)
            file.flush()
            self._client.tell(json.dumps([self.url, path, file.name, count]))
            told = await asyncio.to_thread(self._client.hear)
        if len(told) != count or not {*told} <= {*answers}:
            raise RuntimeError(f"{path}: {told}")


async def measure(asked: list[tuple[str, bytes]], url: str, provider: str) -> list[float]:
    """The longest hold of each request, in milliseconds."""
    holds = []
    async with Pipeline.open(url, provider) as pipeline:
        for door, sent in asked[:1] + asked:
            probe = Probe()
            task = asyncio.create_task(probe.run())
            await pipeline.ask(PATHS[door], sent)
            task.cancel()
            holds.append(1000 * probe.longest)
    return holds[1:]


@contextmanager
def parsing_here() -> Iterator[None]:
    """As if no body were large."""
    modules = handlers, processor
    for module in modules:
        setattr(module, "MAX_QUICK_BYTES", NEVER)  # noqa: B010 - a constant
    try:
        yield
    finally:
        for module in modules:
            setattr(module, "MAX_QUICK_BYTES", MAX_QUICK_BYTES)  # noqa: B010


def client() -> None:
    """The role of the client: sends what each line says on one connection, and tells the statuses."""
    while line := listen():
        url, path, file, count = json.loads(line)
        connection = HTTPConnection(url.removeprefix("http://").strip("/"))
        body, statuses = Path(file).read_bytes(), []
        for _ in range(count):
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
        connection.close()
        say(statuses)


def server(provider: str) -> None:
    """The role of a provider's server: reads each request, and says one word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        say(listening.getsockname()[1])
        while True:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as reader:
                size = 0
                while (line := reader.readline()) not in (b"\r\n", b""):
                    if found := re.match(rb"(?i)content-length: *(\d+)", line):
                        size = int(found[1])
                reader.read(size)
                connection.sendall(HEAD + ANSWERS[provider])


def main() -> None:
    """Read the command line, measure, print."""
    if sys.argv[1:2] == ["client"]:
        client()
        return
    if sys.argv[1:2] == ["server"]:
        server(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--doors", nargs="+", choices=PATHS, default=list(PATHS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--provider", choices=ANSWERS, default="openai")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with ExitStack() as stack:
        fake = stack.enter_context(Child("bench.large_bodies", "server", args.provider))
        url = f"http://127.0.0.1:{fake.hear()}" + ("/v1" if args.provider == "openai" else "")
        asked = [(door, body(door, kind)) for kind in args.kinds for door in args.doors]
        runs = []
        for _ in range(args.runs):
            with parsing_here():
                here = uvloop.run(measure(asked, url, args.provider))
            runs.append([here, uvloop.run(measure(asked, url, args.provider))])
        medians = [[statistics.median(column) for column in zip(*way, strict=True)] for way in zip(*runs, strict=True)]
    print("| longest hold, ms | " + " | ".join(args.doors) + " |")
    print("|---" * (len(args.doors) + 1) + "|")
    cells = [f"{here:.0f} / {apart:.0f}" for here, apart in zip(*medians, strict=True)]
    for number, kind in enumerate(args.kinds):
        row = cells[number * len(args.doors) : (number + 1) * len(args.doors)]
        print(f"| {kind} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
