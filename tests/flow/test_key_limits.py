"""What a key may use, on every door: requests and tokens a minute, requests side by side; and what is counted of it."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from prometheus_client import REGISTRY
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm, release
from tests.flow.narrow_gateway import COMPLETION, DOORS, SOCKET, Refused, digest_of, narrow_gateway, token_of
from tests.until import until
from tests.virtual_time import in_virtual_time
from tests.within import within
from tg_base.config import ApiKey, GatewayConfig
from tg_base.llm import LlmChunk
from tg_schema import COMMON_FEATURES, TextCompletionRequest, ToolCallDelta
from tg_schema.errors import RateLimited


def keys(*, reserve_tokens: int = 1024, **limits: Any) -> GatewayConfig:
    """One key with limits and one without."""
    limited = ApiKey(name="limited", sha256=digest_of("limited"), **limits)
    free = ApiKey(name="free", sha256=digest_of("free"))
    return GatewayConfig(port=0, drain=0.05, keys=(limited, free), reserve_tokens=reserve_tokens)


def refusals(reason: str) -> float:
    return REGISTRY.get_sample_value("tg_refusals_total", {"service": "text-completion", "reason": reason}) or 0.0


@pytest.mark.parametrize("door", DOORS)
async def test_requests_per_minute(door: str) -> None:
    async with narrow_gateway(capacity=8, config=keys(requests_per_minute=2)) as it:
        counted = refusals("requests")
        assert [await it.ask(door, key="limited") for _ in range(2)] == ["0 ", "0 "]
        refused = await it.ask(door, key="limited")
        assert isinstance(refused, Refused)
        assert (refused.status, refused.kind) == (429, "rate-limited")
        assert 1 < refused.after <= 30
        assert refusals("requests") == counted + 1
        assert await it.ask(door, key="free") == "0 "
        assert len(it.llm.requests) == 3


async def test_prompts_are_reserved_before_they_are_read() -> None:
    async with narrow_gateway(capacity=8, config=keys(tokens_per_minute=600, reserve_tokens=1)) as it:
        it.llm.step = asyncio.Semaphore(0)
        long = "1" + " " * 100_000
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(it.ask(key="limited", prompt=long)) for _ in range(20)]
            await until(lambda: sum(each.done() for each in asking) == 19)
            it.llm.step.release()
        refused = [each.result() for each in asking if isinstance(each.result(), Refused)]
        assert len(refused) == 19
        assert len(it.llm.requests) == 1


@pytest.mark.parametrize("door", DOORS)
async def test_streams_side_by_side(door: str) -> None:
    async with narrow_gateway(capacity=8, config=keys(streams=1)) as it:
        it.llm.step = asyncio.Semaphore(0)
        running = asyncio.create_task(it.ask(door, key="limited"))
        await it.until_asked(1)
        for other in DOORS:
            refused = await it.ask(other, key="limited")
            assert isinstance(refused, Refused)
            assert (refused.status, refused.kind) == (429, "rate-limited")
            assert refused.after > 0
        beside = asyncio.create_task(it.ask(door, key="free"))
        await it.until_asked(2)
        release(it.llm.step, 2)
        assert list(await asyncio.gather(running, beside)) == ["0 ", "0 "]
        it.llm.step = None
        assert await it.ask(door, key="limited") == "0 "


@pytest.mark.parametrize("door", DOORS)
async def test_tokens_are_reserved_while_a_request_runs_and_settled_after(door: str) -> None:
    async with narrow_gateway(capacity=8, config=keys(tokens_per_minute=100)) as it:
        it.llm.step = asyncio.Semaphore(0)
        running = asyncio.create_task(it.ask(door, key="limited", sampling={"max_tokens": 60}))
        await it.until_asked(1)
        refused = await it.ask(door, key="limited", sampling={"max_tokens": 60})
        assert isinstance(refused, Refused)
        assert (refused.status, refused.kind) == (429, "rate-limited")
        assert 1 < refused.after <= 12
        it.llm.step.release()
        assert await running == "0 "
        it.llm.step = None
        # The usage was 7 + 1.
        assert await it.ask(door, key="limited", sampling={"max_tokens": 92}) == "0 "


@pytest.mark.parametrize("door", DOORS)
async def test_tokens_beyond_the_reservation_are_owed(door: str) -> None:
    async with narrow_gateway(capacity=8, config=keys(tokens_per_minute=60, reserve_tokens=1)) as it:
        text = await it.ask(door, 113, key="limited")
        assert isinstance(text, str)
        refused = await it.ask(door, key="limited")
        assert isinstance(refused, Refused)
        # 120 of 60 were used, and the next one wants 1.
        assert 55 < refused.after <= 61


@pytest.mark.parametrize("streaming", [False, True])
@in_virtual_time
async def test_a_cancelled_request_is_settled(streaming: bool) -> None:
    config = keys(tokens_per_minute=1000)
    headers = {"Authorization": f"Bearer {token_of('limited')}"}
    sampling = {"max_tokens": 1000}
    async with narrow_gateway(capacity=8, config=config) as it, it.http.ws_connect(SOCKET, headers=headers) as socket:
        it.llm.step = asyncio.Semaphore(1)
        body = {"prompt": "1000", "streaming": streaming, "sampling": sampling}
        await socket.send_json({"id": "a", "service": "text-completion", "request": body})
        await it.until_asked(1)
        assert isinstance(await it.ask(key="limited", sampling=sampling), Refused)
        await socket.send_json({"id": "a", "cancel": True})
        while not (said := await socket.receive_json(timeout=5))["complete"]:
            assert said["response"]["response"] == "0 "
        assert said["error"]["type"] == "cancelled"
        await it.llm.stopped.wait()
        it.llm.step = None
        # Of the reserved 1000 all but an estimate came back: a quarter of the request's few hundred bytes.
        assert await it.ask(key="limited", sampling={"max_tokens": 700}) == "0 "
        refused = await it.ask(key="limited", sampling=sampling)
        assert isinstance(refused, Refused)


async def test_a_client_that_hangs_up_gives_its_stream_back() -> None:
    async with narrow_gateway(capacity=8, config=keys(streams=1)) as it:
        it.llm.step = asyncio.Semaphore(0)
        leaving = asyncio.create_task(it.ask("sse", key="limited"))
        await it.until_asked(1)
        leaving.cancel()
        await within(1, it.llm.stopped.wait())
        await until(lambda: REGISTRY.get_sample_value("tg_gateway_streams") == 0)
        it.llm.step = None
        assert await it.ask(key="limited") == "0 "


async def test_what_the_queue_refuses_costs_the_key_nothing() -> None:
    async with narrow_gateway(capacity=1, queue=0, config=keys(requests_per_minute=1, streams=1)) as it:
        it.llm.step = asyncio.Semaphore(0)
        running = asyncio.create_task(it.ask(key="free"))
        await it.until_asked(1)
        for _ in range(3):
            async with it.http.post(
                COMPLETION, json={"prompt": "1"}, headers={"Authorization": f"Bearer {token_of('limited')}"}
            ) as response:
                assert response.status == RateLimited.status
                assert "wait for text-completion" in json.loads(await response.text())["error"]["message"]
        it.llm.step.release()
        await running
        it.llm.step = None
        assert await it.ask(key="limited") == "0 "


async def test_a_request_that_makes_no_sense_costs_nothing() -> None:
    async with narrow_gateway(capacity=8, config=keys(requests_per_minute=1)) as it:
        headers = {"Authorization": f"Bearer {token_of('limited')}"}
        for _ in range(3):
            async with it.http.post(COMPLETION, data=b"{}", headers=headers) as response:
                assert response.status == 400
        assert await it.ask(key="limited") == "0 "


class _CarelessLlm(CountingLlm):
    """Calls a tool with arguments that are no JSON."""

    features = COMMON_FEATURES | {"tools"}

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        yield LlmChunk(tool_calls=(ToolCallDelta(0, "1", "f", "no JSON"),))
        yield LlmChunk(finish_reason="tool_calls", in_token=1000, out_token=500)


@pytest.mark.parametrize("streaming", [False, True])
async def test_an_answer_that_the_dialect_refuses_at_its_end_is_charged(*, streaming: bool) -> None:
    asked = {"model": "counting", "messages": [{"role": "user", "content": "a"}], "stream": streaming}
    asked["tools"] = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    config = keys(tokens_per_minute=1000, reserve_tokens=1)
    async with narrow_gateway(capacity=8, config=config, llm=_CarelessLlm()) as it:
        headers = {"Authorization": f"Bearer {token_of('limited')}"}
        async with it.http.post("api/chat", json=asked, headers=headers) as response:
            assert "arguments that are no JSON object" in await response.text()
        refused = await it.ask(key="limited")
        assert isinstance(refused, Refused)
        assert refused.kind == "rate-limited"


CONFIG = GatewayConfig(port=0, drain=0.05, keys=(ApiKey(name="counted", sha256=digest_of("counted")),))


def read(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def tokens(name: str, **labels: str) -> tuple[float, ...]:
    return tuple(read(name, direction=direction, **labels) for direction in ("in", "out"))


@pytest.mark.parametrize("door", DOORS)
async def test_requests_and_tokens_of_a_key(door: str) -> None:
    async with narrow_gateway(capacity=8, config=CONFIG) as it:
        asked = read("tg_key_requests_total", key="counted", outcome="ok")
        used, provider = tokens("tg_key_tokens_total", key="counted"), tokens("tg_tokens_total", model=it.llm.model)
        await it.ask(door, 3, key="counted")
        await until(lambda: read("tg_key_requests_total", key="counted", outcome="ok") == asked + 1)
        now, counted = tokens("tg_key_tokens_total", key="counted"), tokens("tg_tokens_total", model=it.llm.model)
        grown = [after - before for after, before in zip(now, used, strict=True)]
        assert grown == [after - before for after, before in zip(counted, provider, strict=True)]
        assert min(grown) > 0
