"""Calls of functions that one chunk costs at each door, by those at the native door: the same on a busy machine.

    python -m bench.calls                   a chunk at a time, and 16 streams flat out (two minutes)
    python -m bench.calls --tokens          the model tells its tokens to the doors that show them
    python -m bench.calls --usage           answers of 64 chunks, by the same without records of usage

Gateway, processor, memory bus and a client that reads bytes are in one process; what is counted is every call of a
Python or a C function while a stream runs (`sys.setprofile`). The client's share is the same at every door.
"""

import argparse
import asyncio
import json
import logging
import statistics
import sys
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any, cast
from urllib.parse import urlsplit

import structlog
from typing_extensions import override

from bench.load_client import DOORS, END, TAIL, handshake, make_request, masked, post
from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import open_gateway, until_listed
from tg_base.llm import LlmChunk, service
from tg_base.server import UsageAccount
from tg_schema import COMMON_FEATURES, TextCompletionRequest, Token

CHUNKS = 400
FEW_CHUNKS = 64
REST_SECONDS = 0.6
"""In which the records of usage leave."""
MODEL = "counting"
PATIENCE_SECONDS = 60.0


class WordLlm(CountingLlm):
    """Says a word, and lets everybody else have `turns` turns: 6 = each word travels alone."""

    def __init__(self, *, tokens: bool) -> None:
        super().__init__(MODEL)
        self.features = COMMON_FEATURES if tokens else COMMON_FEATURES - {"logprobs"}
        self.turns = 6.0

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        chunks = int(request.prompt or "")
        told = request.sampling is not None and request.sampling.logprobs is not None
        tokens = (Token(17, "word ", -0.25),) if told else ()
        owed = 0.0
        for _ in range(chunks):
            yield LlmChunk("word ", tokens=tokens)
            owed += self.turns
            while owed >= 1:
                owed -= 1
                await asyncio.sleep(0)
        yield LlmChunk(in_token=7, out_token=chunks, finish_reason="stop")


class Reader(asyncio.Protocol):
    """Asks, and reads to the end of the stream."""

    def __init__(self, host: str, door: str, chunks: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        path, body = make_request(door, str(chunks))
        asked = json.dumps({**body, **({"model": MODEL} if "model" in body else {})}).encode()
        self._later = masked(b"GENERATE " + asked) if door == "lmtp" else b""
        self._now = handshake(host, path) if self._later else post(host, path, asked)
        self._rest = b""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._now)

    @override
    def data_received(self, data: bytes) -> None:
        if self._later and b"\r\n\r\n" in data:
            self._transport.write(self._later)
            self._later = b""
        data = self._rest + data
        self._rest = data[-TAIL:]
        if END.search(data) and not self.done.done():
            self.done.set_result(None)
            self._transport.close()


async def ask(url: str, door: str, chunks: int = CHUNKS) -> None:
    """One stream."""
    target = urlsplit(url)
    loop = asyncio.get_running_loop()
    _, reader = await loop.create_connection(
        lambda: Reader(target.netloc, door, chunks), target.hostname or "", target.port or 0
    )
    await asyncio.wait_for(reader.done, PATIENCE_SECONDS)


async def count(url: str, door: str, streams: int, rounds: int, *, chunks: int = CHUNKS, rest: float = 0.0) -> float:
    """The median of the calls for one chunk; those of the `rest` after the answers, in seconds, count too."""
    found = []
    for _ in range(rounds):
        calls = 0

        def note(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event in {"call", "c_call"}

        sys.setprofile(note)
        try:
            await asyncio.gather(*[ask(url, door, chunks) for _ in range(streams)])
            await asyncio.sleep(rest)
        finally:
            sys.setprofile(None)
        found.append(calls / chunks / streams)
    return statistics.median(found)


async def measure(doors: tuple[str, ...], *, tokens: bool, rounds: int) -> None:
    """Print both tables."""
    llm = WordLlm(tokens=tokens)
    async with open_gateway(instead=llm) as it:
        await until_listed(it.http)
        for name, turns, streams in (("a chunk at a time", 6.0, 1), ("16 streams flat out", 0.25, 16)):
            llm.turns = turns
            for door in doors:
                await ask(it.gateway.url, door)
            calls = {door: await count(it.gateway.url, door, streams, rounds) for door in doors}
            print(f"\n| {name} | calls for a chunk | by native |\n|---|---|---|")
            for door, each in calls.items():
                print(f"| {door} | {each:.1f} | {each / calls['sse']:.2f} |")


async def measure_usage(rounds: int) -> None:
    """Print what the records of usage add, where no provider's bytes are read: with them the share is less."""
    llm, own = WordLlm(tokens=False), service.ACCOUNT  # type: ignore[attr-defined]
    async with open_gateway(instead=llm) as it:
        await until_listed(it.http)
        print("\n| | calls for a chunk | by those without records |\n|---|---|---|")
        for name, llm.turns, streams in (("1 stream", 6.0, 1), ("16 streams", 6.0, 16), ("flat out", 0.25, 16)):
            found = []
            for account in (ContextVar[UsageAccount | None]("of nobody", default=None), own):
                service.ACCOUNT = account  # type: ignore[attr-defined]
                await ask(it.gateway.url, "sse", FEW_CHUNKS)
                found.append(await count(it.gateway.url, "sse", streams, rounds, chunks=FEW_CHUNKS, rest=REST_SECONDS))
            print(f"| {name} | {found[1]:.1f} | {found[1] / found[0]:.3f} |")


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", action="store_true", help="the model tells its tokens")
    parser.add_argument("--usage", action="store_true", help="what records of usage add")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    doors = tuple(door for door in DOORS if door != "websocket")
    if args.usage:
        asyncio.run(measure_usage(args.rounds))
        return
    asyncio.run(measure(doors, tokens=args.tokens, rounds=args.rounds))


if __name__ == "__main__":
    main()
