"""What it costs that operators look: CPU of a gateway with 100 processors and 10,000 streams, by viewers.

    python -m bench.live_view                          20 pairs of five seconds, without viewers and with 20
    python -m bench.live_view --gateways 3             the viewers look through three gateways in turn
    python -m bench.live_view --streams 200 --pairs 1  a look

Gateways and processors are one process, on the memory bus; clients and viewers are another. The first gateway has all
streams; what several gateways cost together is more than what each would cost alone. All streams are open; the oldest
of each processor says a word twice a second, so that the rows of the oldest streams and of all queues change all the
time. Prints the medians, and the range of the differences. Other work on the machine makes the same work
cost more: the quarter of the times that cost least shows the difference more clearly.
"""

import argparse
import asyncio
import logging
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress

import structlog
from typing_extensions import override

from bench.child import Child, listen, own_cpu, say
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import Config, GatewayConfig, ServiceConfig, TextCompletionConfig
from tg_base.llm import LlmChunk, LlmService
from tg_base.server import Processor
from tg_client import TgClient
from tg_client.tg_client import Socket
from tg_gateway.app import Gateway
from tg_schema import COMMON_FEATURES, TextCompletionRequest, TgError

PROCESSORS = 100
STREAMS_OF_SOCKET = 100
SETTLE_SECONDS = 2.0
SECONDS = 5.0
WORD_SECONDS = 0.5
TIMEOUT_SECONDS = 300.0
QUIET_SECONDS = 20.0


class Talker(LlmService):
    """Says a word from time to time, and in its two oldest streams often."""

    features = COMMON_FEATURES

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._often = 0

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        often = self._often < 2
        self._often += often
        try:
            while True:
                yield LlmChunk(text="another word ")
                await asyncio.sleep(WORD_SECONDS if often else QUIET_SECONDS)
        finally:
            self._often -= often


async def serve(gateways: int) -> None:
    """The gateways and the processors; says their URLs, and their CPU whenever it is asked."""
    flows: dict[str, dict[str, ServiceConfig]] = {
        f"f{number}": {"text-completion": TextCompletionConfig(model=f"m{number}")} for number in range(PROCESSORS)
    }
    config, bus = Config(flows=flows), MemoryBus()
    routes = config.routes("text-completion")
    async with AsyncExitStack() as stack:
        for route in routes:
            llm, models = Talker(route.model or ""), (route.model or "",)
            processor = Processor(bus, config.topics, llm, (route,), models=models)
            await stack.enter_async_context(processor)
        queues = tuple(route.request for route in routes)
        settings, opened = GatewayConfig(port=0, drain=0.1, request_timeout=TIMEOUT_SECONDS), list[Gateway]()
        for _ in range(gateways):
            requestor = await stack.enter_async_context(Requestor(bus, config.topics, queues=queues))
            opened.append(await stack.enter_async_context(Gateway(settings, requestor, routes)))
        say([gateway.url for gateway in opened])
        while await asyncio.to_thread(listen):
            say(own_cpu())


async def look(client: TgClient) -> None:
    """One viewer."""
    async with client.follow_live() as documents:
        async for _ in documents:
            pass


async def hold(urls: list[str], streams: int) -> None:
    """Opens the streams, then as many viewers as it is told, again and again."""

    async def ask(client: Socket, number: int) -> None:
        flow = client.flow(f"f{number % PROCESSORS}")
        while True:
            # A model's answer ends after some minutes.
            with suppress(TgError):
                async with flow.text_completion_stream(prompt="x", timeout=TIMEOUT_SECONDS) as chunks:
                    async for _ in chunks:
                        opened.release()

    opened, viewers = asyncio.Semaphore(0), list[asyncio.Task[None]]()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(TgClient(url, timeout=TIMEOUT_SECONDS)) for url in urls]
        client = clients[0]
        asking = list[asyncio.Task[None]]()
        for first in range(0, streams, STREAMS_OF_SOCKET):
            socket = await stack.enter_async_context(client.socket())
            asking += [
                asyncio.create_task(ask(socket, number))
                for number in range(first, min(first + STREAMS_OF_SOCKET, streams))
            ]
            # Each opens the next hundred only when these have begun.
            for _ in range(first, len(asking)):
                await opened.acquire()
        say("open")
        while told := await asyncio.to_thread(listen):
            for viewer in viewers:
                viewer.cancel()
            await asyncio.gather(*viewers, return_exceptions=True)
            viewers = [asyncio.create_task(look(clients[number % len(clients)])) for number in range(int(told))]
            document = await client.live()
            say([len(document.processors), document.totals["streams"]])


def measure(server: Child) -> float:
    """The share of a core that the gateway takes in the next seconds."""

    def read() -> float:
        server.tell("cpu")
        return float(server.hear())

    before, began = read(), time.monotonic()
    time.sleep(SECONDS)
    return (read() - before) / (time.monotonic() - began)


def main() -> None:
    """Run it."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", nargs="*")
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--viewers", type=int, default=20, help="at most 64 (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--gateways", type=int, default=1)
    options = parser.parse_args()
    match options.role:
        case ["serve"]:
            asyncio.run(serve(options.gateways))
        case ["hold", *urls]:
            asyncio.run(hold(urls, options.streams))
        case _:
            run(options.streams, options.viewers, options.pairs, options.gateways)


def run(streams: int, most: int, pairs: int, gateways: int) -> None:
    """Measure and print."""
    with Child("bench.live_view", "serve", "--gateways", str(gateways)) as server:
        urls = server.hear()
        with Child("bench.live_view", "hold", *urls, "--streams", str(streams)) as holder:
            holder.hear()
            shares: dict[int, list[float]] = {0: [], most: []}
            for _ in range(pairs):
                for viewers, found in shares.items():
                    holder.tell(str(viewers))
                    seen = holder.hear()
                    time.sleep(SETTLE_SECONDS)
                    found.append(100 * measure(server))
            more = [after - before for before, after in zip(*shares.values(), strict=True)]
    print(f"{seen[0]} processors, {seen[1]} streams, {pairs} pairs of {SECONDS:g} s; percent of a core")
    for viewers, found in shares.items():
        low, middle, _ = statistics.quantiles(found, n=4)
        print(f"{viewers:3} viewers: {middle:6.2f}, in the quiet quarter {low:.2f}")
    print(f"difference:  {statistics.median(more):6.2f} ({min(more):.2f} to {max(more):.2f})")


if __name__ == "__main__":
    main()
