"""What a request leaves in memory: nothing, however it ended. A garbage collector would come after hundreds more."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import Opened, open_gateway
from tests.until import until
from tg_base.client.asked_stream import AskedStream
from tg_base.config import GatewayConfig
from tg_base.llm import LlmChunk
from tg_base.protocol import HeartbeatTiming
from tg_gateway.dialects import Call
from tg_schema import TextCompletionRequest
from tg_schema.errors import BadRequest

CHAT = "/v1/chat/completions"
SOON = GatewayConfig(port=0, drain=0.05, keep_alive=0.05)
"""A stream that has no token yet begins with a comment, after as many seconds of silence."""


class _Refusing(CountingLlm):
    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncIterator[LlmChunk]:  # type: ignore[override]
        raise BadRequest("not this one")
        yield LlmChunk()


def body(words: int, *, streaming: bool) -> bytes:
    turns = [{"role": "user", "content": str(words)}]
    return json.dumps({"model": "counting", "messages": turns, "stream": streaming}).encode()


def find_kept() -> list[object]:
    return [each for each in gc.get_objects() if isinstance(each, AskedStream | Call | TextCompletionRequest)]


@asynccontextmanager
async def opened_without_collector(llm: CountingLlm, timing: HeartbeatTiming | None = None) -> AsyncIterator[Opened]:
    async with open_gateway(SOON, llm=llm, timing=timing) as it:
        gc.collect()
        # What there is so far is not looked at again and again: all that is found below has come since.
        gc.freeze()
        gc.disable()
        try:
            yield it
            llm.requests.clear()
            await until(lambda: not find_kept())
        finally:
            gc.enable()


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("kind", [CountingLlm, _Refusing])
async def test_a_request_is_freed_with_its_answer(kind: type[CountingLlm], *, streaming: bool) -> None:
    async with opened_without_collector(kind()) as it:
        for _ in range(2):
            data = body(3, streaming=streaming)
            async with it.http.post(CHAT, data=data, headers={"Connection": "close"}) as response:
                await response.read()
                assert response.status == (400 if kind is _Refusing else 200)


async def test_a_request_is_freed_that_heartbeats_and_checks_have_seen() -> None:
    llm = CountingLlm()
    llm.step = asyncio.Semaphore(0)
    async with (
        opened_without_collector(llm, HeartbeatTiming(interval=0.02)) as it,
        it.http.post(CHAT, data=body(1, streaming=True), headers={"Connection": "close"}) as response,
    ):
        await llm.started.wait()
        await asyncio.sleep(0.1)
        llm.step.release()
        await response.read()
