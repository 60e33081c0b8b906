"""A pool that asks a second server where the first one is slow: who answers, what it costs, and what stays counted."""

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
import structlog

from tests.fakes.openai_server import Fault, OpenAiServer, Script
from tests.picker.provider.test_pool_provider import (
    DOWN,
    MODEL,
    REQUEST,
    OpenPool,
    address,
    counted,
    open_pool,
    servers,
    text,
)
from tg_base.llm import LlmChunk, PassOn
from tg_picker.provider import Pool
from tg_picker.provider.hedging import MIN_TIMES, Hedging, begin_either, hedged
from tg_picker.status import BOARDS, RequestRecord, read_status
from tg_schema import Sampling, TextCompletionRequest
from tg_schema.errors import IncompleteStream, Unavailable

__all__ = ["open_pool", "servers"]
MAX_TOKENS_AFTER_CANCEL = 5
"""Of an attempt that lost: what a server writes in the turns of the loop until its socket says that the client left."""
STALLED = Script(fault=Fault.STALL_BEFORE_STATUS)


@pytest.fixture
async def pool(servers: list[OpenAiServer], open_pool: OpenPool) -> Pool:
    """One that hedges after a millisecond, and asks the first server first."""
    made = await open_pool(*servers, policy="round-robin", hedge=0.1, explain=True)
    for _ in range(5 * MIN_TIMES):
        made._hedging.learn(MODEL, 0.001)
    return made


def last_records(pool: Pool) -> list[RequestRecord]:
    return list(pool._picker.board.decisions)


async def test_the_second_server_answers_where_the_first_one_is_slow(servers: list[OpenAiServer], pool: Pool) -> None:
    servers[0].play(Script(fault=Fault.UNSEEN))
    logs: list[MutableMapping[str, Any]]
    with structlog.testing.capture_logs() as logs:
        assert await text(pool) == "Hello €!"
    assert counted(pool) == [0, 0]
    # The first server generates without an end, until it sees that its client has left.
    slow = servers[0].exchanges[0]
    generated = slow.sent
    async with asyncio.timeout(30):
        await slow.left.wait()
    assert slow.sent - generated <= MAX_TOKENS_AFTER_CANCEL
    assert [each.outcome for each in last_records(pool)] == ["another server was faster", "answered"]
    [line] = [each for each in logs if each["event"] == "pool.request"]
    assert (line["model"], line["attempts"], line["outcome"]) == (MODEL, 2, "answered")
    assert "say hello" not in str(line)


async def test_a_route_may_say_when_a_second_server_is_asked(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    policies = {MODEL: {"hedging_delay": 0.001}, "once": {"hedging_delay": 0.001, "max_attempts": 1}}
    places = [address(each) for each in servers]
    tables = [{"name": each, "endpoints": places, "models": [each], "failure": policies[each]} for each in policies]
    pool = await open_pool(endpoints=[], pools=tables, policy="round-robin")
    servers[0].play(STALLED)
    assert await text(pool) == "Hello €!"
    assert [each.outcome for each in last_records(pool)] == ["another server was faster", "answered"]
    assert counted(pool) == [0, 0]
    # As many servers as its route allows.
    for server in servers:
        server.model = "once"
        server.play(DOWN)
    before = sum(len(each.exchanges) for each in servers)
    with pytest.raises(Unavailable, match="status 503"):
        await text(pool, msgspec.structs.replace(REQUEST, adapter="once"))
    assert sum(len(each.exchanges) for each in servers) == before + 1


async def test_a_client_that_leaves_leaves_both(servers: list[OpenAiServer], pool: Pool) -> None:
    servers[1].play(Script(fault=Fault.UNSEEN))
    servers[0].play(STALLED)
    asking = asyncio.create_task(text(pool))
    async with asyncio.timeout(30):
        second = await servers[1].exchange(0)
        assert counted(pool) == [1, 1]
        generated = second.sent
        asking.cancel()
        await second.left.wait()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert counted(pool) == [0, 0]
    assert second.sent - generated <= MAX_TOKENS_AFTER_CANCEL


async def test_a_fast_first_token_asks_nobody_else(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    pool = await open_pool(*servers, policy="round-robin", hedge=0.5)
    for _ in range(MIN_TIMES):
        pool._hedging.learn(MODEL, 60.0)
    servers[0].play(Script(fault=Fault.ENDLESS))
    async with aclosing(pool.on_request(REQUEST)) as stream:
        await anext(stream)
        assert counted(pool) == [1, 0]
    assert servers[1].exchanges == []


async def test_a_first_server_that_fails_leaves_the_answer_to_the_second(
    servers: list[OpenAiServer], pool: Pool, open_pool: OpenPool
) -> None:
    servers[0].play(Script(fault=Fault.ABORT_BEFORE_STATUS))
    assert await text(pool) == "Hello €!"
    servers[0].play(DOWN)
    servers[1].play(Script(fault=Fault.ABORT, after=1))
    with pytest.raises(IncompleteStream):
        await text(pool)
    assert counted(pool) == [0, 0]


class Told:
    """An attempt that begins when it is told to, and says that it was ended."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.asked, self.gate, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def chunks(self) -> AsyncGenerator[LlmChunk, PassOn | None]:
        try:
            self.asked.set()
            await self.gate.wait()
            if self.fails:
                raise Unavailable("down")
            yield LlmChunk(text="a")
            yield LlmChunk(text="b", finish_reason="stop")
        finally:
            self.over.set()


async def read_either(first: Told, second: Told) -> str:
    async with (
        aclosing(first.chunks()) as chunks,
        hedged(0.0, second.chunks) as attempt,
        asyncio.timeout(30),
    ):
        held, rest = await begin_either(chunks, attempt)
        # Nobody waits for the end of the answer with the other attempt.
        await (second if rest is chunks else first).over.wait()
        return "".join([*(each.text for each in held), *[each.text async for each in rest]])


@pytest.mark.parametrize("at", [0, 1])
async def test_the_first_token_wins_and_the_other_attempt_is_ended(at: int) -> None:
    both = Told(), Told()
    reading = asyncio.create_task(read_either(*both))
    await both[1].asked.wait()
    both[at].gate.set()
    assert await reading == "ab"


async def test_a_second_attempt_that_fails_changes_nothing() -> None:
    first, second = Told(), Told(fails=True)
    reading = asyncio.create_task(read_either(first, second))
    second.gate.set()
    await second.over.wait()
    assert not first.over.is_set()
    first.gate.set()
    assert await reading == "ab"


async def test_a_client_that_leaves_breaks_no_second_attempt() -> None:
    first, second = Told(fails=True), Told()
    async with hedged(0.0, second.chunks) as attempt:
        assert attempt is not None
        await second.asked.wait()
        first.gate.set()
        with pytest.raises(Unavailable):
            await begin_either(first.chunks(), attempt)
        taking = asyncio.create_task(attempt.take_over())
        await asyncio.sleep(0)
        second.gate.set()
        taking.cancel()
        await asyncio.wait([taking])
        begun = await attempt.take_over()
        assert begun is not None, "it has begun all the same, and goes on until the block is left"
        held, rest = begun
        assert [*held, *[each async for each in rest]]


@pytest.mark.parametrize(
    ("request_", "hedge"), [(TextCompletionRequest(prompt="say hello", sampling=Sampling(n=2)), 0.1), (REQUEST, 0.0)]
)
async def test_what_is_never_asked_twice(
    servers: list[OpenAiServer], open_pool: OpenPool, request_: TextCompletionRequest, hedge: float
) -> None:
    pool = await open_pool(*servers, policy="round-robin", hedge=hedge)
    for _ in range(5 * MIN_TIMES):
        pool._hedging.learn(MODEL, 0.0)
    order = pool._make_order(request_)
    assert pool._find_delay(order) is None


def test_a_budget_and_a_quantile() -> None:
    hedging = Hedging(0.05)
    for number in range(MIN_TIMES - 1):
        hedging.learn("r", number / 100)
        assert hedging.find_delay("r") is None
    hedging.learn("r", 0.19)
    assert hedging.find_delay("r") == 0.19
    assert hedging.find_delay("another") is None
    assert [hedging.spend(), hedging.spend()] == [True, False]
    spent = 0
    for _ in range(1_000):
        hedging.learn("r", 0.1)
        spent += hedging.spend()
    assert spent == 50


async def test_the_page_shows_the_pool_of_this_process(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    pool = await open_pool(*servers)
    assert await text(pool) == "Hello €!"
    [picker] = read_status(BOARDS).pickers
    assert (picker.name, picker.decisions[0].outcome) == (MODEL, "answered")
    assert "chosen among 2 servers" in picker.decisions[0].reasons
    assert picker.decisions[0].output_tokens == 3
