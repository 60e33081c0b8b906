"""A client leaves, through any door and at any moment: the model's socket is closed within a second."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from aiohttp import ClientSession

from tests.connected.lateness import lateness
from tests.connected.pipeline import Pipeline, metric
from tests.fakes.live_openai import PROMPT_TOKENS, LiveOpenAi
from tests.flow.command import started
from tests.free_port import free_port
from tg_client import Socket, TgClient

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

BOUND = 1.0
"""Seconds from leaving to the close of the model's socket."""

Seen = Callable[[], Awaitable[object]]
Door = Callable[[str, str, str], AbstractAsyncContextManager[Seen]]
"""Gateway, flow and prompt -> a client that has asked, and leaves when the block is left; it tells when it has text."""


@asynccontextmanager
async def events(url: str, flow: str, prompt: str) -> AsyncIterator[Seen]:
    """Server-sent events; leaving cuts the connection."""
    async with TgClient(url, retries=0) as client, client.flow(flow).text_completion_stream("", prompt) as chunks:
        yield lambda: anext(chunks)


def frames_of(shared: Socket) -> Door:
    """One stream of a WebSocket, which stays open; leaving sends the frame that cancels it."""

    @asynccontextmanager
    async def cancelled_frame(_: str, flow: str, prompt: str) -> AsyncIterator[Seen]:
        async with shared.flow(flow).text_completion_stream("", prompt) as chunks:
            yield lambda: anext(chunks)

    return cancelled_frame


@asynccontextmanager
async def closed_socket(url: str, flow: str, prompt: str) -> AsyncIterator[Seen]:
    """A WebSocket that is closed under its stream."""
    async with ClientSession() as http, http.ws_connect(f"{url}api/v1/socket") as frames:
        request = {"system": "", "prompt": prompt, "streaming": True}
        await frames.send_json({"id": "1", "service": "text-completion", "flow": flow, "request": request})
        yield frames.receive_str


@asynccontextmanager
async def whole_answer(url: str, flow: str, prompt: str) -> AsyncIterator[Seen]:
    """A POST that waits for the whole answer, and so sees nothing before; leaving cuts the connection."""
    async with TgClient(url, retries=0) as client:
        asking = asyncio.create_task(client.flow(flow).text_completion("", prompt))
        yield lambda: asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])


@asynccontextmanager
async def command(url: str, flow: str, prompt: str) -> AsyncIterator[Seen]:
    """The command line; leaving is Ctrl-C."""
    async with started("tg-invoke-llm", "", prompt, "-u", url, "-f", flow) as process:
        shown = process.stdout
        assert shown is not None
        yield lambda: shown.readexactly(1)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 130


class Tokens:
    """The processor's count."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"

    async def told(self) -> tuple[float, float]:
        """In and out, so far."""
        async with ClientSession() as http, http.get(self._url) as page:
            text = await page.text()
        return metric(text, "tg_tokens_total", {"direction": "in"}), metric(
            text, "tg_tokens_total", {"direction": "out"}
        )

    async def become(self, wanted: tuple[float, float]) -> None:
        """Wait until they are that; a page tells nobody when it changes."""
        async with asyncio.timeout(5):
            while await self.told() != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_whoever_leaves_stops_the_model_within_a_second(line: Pipeline, live_model: LiveOpenAi) -> None:
    """What the provider had told of its tokens until then is counted."""
    port = free_port()
    live_model.counts, live_model.pace = True, 60.0
    gateway, processor = await asyncio.gather(
        line.start("gateway"), line.start("text-completion", "--metrics-port", str(port))
    )
    tokens = Tokens(port)
    async with TgClient(gateway.url, retries=0) as client, client.socket() as shared:
        # The whole answer comes last: what the processor has read of it when it is left is a matter of chance.
        for door in (events, frames_of(shared), closed_socket, command, whole_answer):
            for spoken in (True, False):
                before = await tokens.told()
                async with lateness(gateway, processor) as late:
                    await leave(door, gateway.url, line.flow, live_model, late, spoken=spoken)
                if spoken and door is not whole_answer:
                    await tokens.become((before[0] + PROMPT_TOKENS, before[1] + 1))


async def leave(door: Door, url: str, flow: str, model: LiveOpenAi, late: Callable[[], float], *, spoken: bool) -> None:
    """Ask, wait for the moment, leave, and see the model's socket closed; how late the machine was does not count."""
    prompt = f"{door.__name__}, {'after' if spoken else 'before'} its first token"
    (model.speak.set if spoken else model.speak.clear)()
    async with door(url, flow, prompt) as seen:
        await model.until(lambda: bool(model.of(prompt)), 20)
        (generation,) = model.of(prompt)
        if spoken:
            await asyncio.wait_for(seen(), 10)
            await model.until(lambda: generation.sent == 1, 10)
        left, late_before = asyncio.get_running_loop().time(), late()
    await asyncio.wait_for(generation.left.wait(), 10)
    assert generation.left_at - left < BOUND + late() - late_before, prompt
    assert len(model.of(prompt)) == 1
