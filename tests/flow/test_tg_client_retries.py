"""The SDK asks again: when, how often, for how long, and when not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fakes.gateway_wire import END, EVENTS, WELL, GatewayWire, chunk, gateway_wire, in_turn, response
from tests.fakes.socket_wire import SocketWire
from tests.flow.narrow_gateway import narrow_gateway
from tests.until import AT_ONCE_SECONDS
from tests.virtual_time import in_virtual_time
from tg_client import Flow, SyncTgClient, TgClient
from tg_client.transport.retries import MAX_RETRIES, SPREAD_SECONDS
from tg_schema import AGENT, AgentRequest, TgError
from tg_schema.errors import BadRequest, IncompleteStream, NotFound, RateLimited, Timeout, Unavailable

FULL = response("429 Slow", b'{"error":{"type":"rate-limited","message":"full","retry_after":7}}')
AWAY = response("503 Away", b"")
WRONG = response("400 Bad", b'{"error":{"type":"bad-request","message":"wrong"}}')
FAILED = EVENTS + chunk(b'data: {"error":{"type":"unavailable","message":"gone"},"end_of_stream":true}\n\n') + END
BEGUN = EVENTS + chunk(b'data: {"response":"so ","end_of_stream":false}\n\n') + END
ALL = 1000


@dataclass
class Told:
    """What a client has told of its waits."""

    waits: list[tuple[type[TgError], float]] = field(default_factory=list)

    def __call__(self, error: TgError, seconds: float) -> None:
        self.waits.append((type(error), seconds))


@asynccontextmanager
async def asking(
    *answers: bytes, timeout: float = 300.0, retries: int | None = None
) -> AsyncIterator[tuple[Flow, GatewayWire, Told]]:
    """A flow of a gateway that answers so, what the gateway sees, and what the client tells."""
    told = Told()
    async with (
        gateway_wire(in_turn(*answers)) as wire,
        TgClient(wire.url, timeout=timeout, retries=retries, on_retry=told) as client,
    ):
        yield client.flow(), wire, told


async def stream(flow: Flow) -> str:
    async with flow.text_completion_stream("", "p") as chunks:
        return "".join([record.response or "" async for record in chunks])


async def whole(flow: Flow) -> str:
    return (await flow.text_completion("", "p")).text


async def template(flow: Flow) -> str | None:
    return (await flow.prompt("t")).text


async def agent(flow: Flow) -> str:
    await flow.agent("q")
    return "well"


@pytest.mark.parametrize("ask", [stream, whole, template, agent])
@in_virtual_time
async def test_a_call_that_was_refused_is_asked_again_when_it_was_told_to(
    ask: Callable[[Flow], Coroutine[Any, Any, str | None]],
) -> None:
    async with asking(FULL, AWAY, FAILED, b"", FULL, WELL) as (flow, wire, told):
        assert await ask(flow) == "well"
        assert asyncio.get_running_loop().time() == pytest.approx(sum(seconds for _, seconds in told.waits), abs=1)
    assert len(set(wire.requests)) == 1
    assert len(wire.requests) == 6
    assert [kind for kind, _ in told.waits] == [RateLimited, Unavailable, Unavailable, Unavailable, RateLimited]
    for number, ((_, seconds), least) in enumerate(zip(told.waits, (7, 0, 0, 1, 7), strict=True)):
        assert least <= seconds <= least + SPREAD_SECONDS * 2**number


@pytest.mark.parametrize(
    ("answer", "retries", "timeout", "kind", "requests"),
    [
        pytest.param(FULL, 0, 300, RateLimited, {1}, id="off"),
        pytest.param(FULL, 2, 300, RateLimited, {3}, id="as often as was said"),
        pytest.param(FULL, None, 7, RateLimited, {1}, id="later than the deadline"),
        pytest.param(FULL, None, 100, RateLimited, set(range(6, 15)), id="until the deadline"),
        pytest.param(AWAY, None, 300, Unavailable, {1 + MAX_RETRIES}, id="soon told"),
        pytest.param(AWAY, ALL, 120, Unavailable, set(range(18, 120)), id="the waits grow and are bounded"),
        pytest.param(WRONG, None, 300, BadRequest, {1}, id="would fail again"),
        pytest.param(BEGUN, None, 300, IncompleteStream, {1}, id="has begun"),
    ],
)
@in_virtual_time
async def test_how_often_and_how_long(
    answer: bytes, retries: int | None, timeout: float, kind: type[TgError], requests: set[int]
) -> None:
    async with asking(answer, retries=retries, timeout=timeout) as (flow, wire, told):
        with pytest.raises(kind):
            await stream(flow)
        assert asyncio.get_running_loop().time() < timeout + 1
    assert len(wire.requests) in requests
    assert len(told.waits) == len(wire.requests) - 1


@in_virtual_time
async def test_the_deadline_is_that_of_all_attempts() -> None:
    """The second attempt gets what the first one has left; between two records the whole time counts again."""
    async with asking(FULL, EVENTS, timeout=10) as (flow, wire, _):
        with pytest.raises((Timeout, IncompleteStream)):
            await stream(flow)
    assert asyncio.get_running_loop().time() <= 11
    assert len(wire.requests) >= 2


@in_virtual_time
async def test_a_reader_that_asks_on_after_the_error_asks_nothing_again() -> None:
    async with asking(WRONG, WELL) as (flow, wire, _), flow.text_completion_stream("", "p") as chunks:
        with pytest.raises(BadRequest):
            await anext(chunks)
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)
    assert len(wire.requests) == 1


@in_virtual_time
async def test_an_agent_that_tells_nothing_before_its_end_is_asked_once() -> None:
    """Its tools may have run."""
    async with asking(FULL, WELL) as (flow, wire, _):
        with pytest.raises(RateLimited):
            async with flow.records(AGENT, AgentRequest("q")) as records:
                await anext(records)
    assert len(wire.requests) == 1


@in_virtual_time
async def test_the_list_of_models_is_asked_for_again() -> None:
    models = response("200 OK", b'{"models":[]}', "Content-Type: application/json")
    async with gateway_wire(in_turn(FULL, models)) as wire, TgClient(wire.url) as client:
        assert await client.models() == ()
    assert len(wire.requests) == 2


async def test_a_cancelled_call_waits_no_longer() -> None:
    waits = asyncio.Event()
    async with gateway_wire(in_turn(FULL)) as wire, TgClient(wire.url, on_retry=lambda *_: waits.set()) as client:
        call = asyncio.create_task(whole(client.flow()))
        await waits.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, AT_ONCE_SECONDS)
    assert len(wire.requests) == 1


async def test_blocking_code_asks_again() -> None:
    told = Told()
    quick = FULL.replace(b":7}}", b":0}}")

    def ask(url: str) -> str:
        with SyncTgClient(url, on_retry=told) as client:
            return client.flow().text_completion("", "p").text

    async with gateway_wire(in_turn(quick, WELL)) as wire:
        assert await asyncio.to_thread(ask, wire.url) == "well"
    assert [kind for kind, _ in told.waits] == [RateLimited]


REFUSED = '{"id":"ID","error":{"type":"rate-limited","message":"full","retry_after":0.01},"complete":true}'
ANSWERED = '{"id":"ID","response":{"response":"well","end_of_stream":true},"complete":true}'


async def test_a_refusal_on_a_socket_is_asked_again_on_it() -> None:
    wire = SocketWire([REFUSED])

    def answer(_: TgError, __: float) -> None:
        wire.frames = [ANSWERED]

    async with (
        wire.listening() as url,
        TgClient(url, on_retry=answer) as client,
        client.socket() as socket,
    ):
        assert await stream(socket.flow()) == "well"
    assert [frame["id"] for frame in wire.received[1:]] == ["req-1", "req-2"]


async def test_a_socket_that_has_ended_is_not_waited_for() -> None:
    told = Told()
    async with (
        SocketWire([None]).listening() as url,
        TgClient(url, on_retry=told) as client,
        client.socket() as socket,
    ):
        for _ in range(2):
            with pytest.raises(IncompleteStream):
                await whole(socket.flow())
    assert not told.waits


async def test_a_socket_that_is_refused_is_opened_again() -> None:
    told = Told()
    answer = in_turn(AWAY, response("404 No", b""))
    async with gateway_wire(answer) as wire, TgClient(wire.url, on_retry=told) as client:
        with pytest.raises(NotFound):
            await client.socket().__aenter__()
    assert [kind for kind, _ in told.waits] == [Unavailable]


@pytest.mark.parametrize("door", ["rest", "socket"])
async def test_two_hundred_requests_at_once_get_two_hundred_answers(door: str) -> None:
    """64 of them find a place. Without retries the others fail."""
    async with narrow_gateway(capacity=16, queue=48) as it:
        for retries, count in ((0, 100), (None, 200)):
            async with TgClient(it.gateway.url, retries=retries) as client, client.socket() as socket:
                flow = client.flow() if door == "rest" else socket.flow()
                asked = (flow.text_completion("", "3") for _ in range(count))
                answers = await asyncio.gather(*asked, return_exceptions=True)
            refused = [answer for answer in answers if isinstance(answer, RateLimited)]
            assert bool(refused) is (retries == 0)
            assert [answer.text for answer in answers if not isinstance(answer, BaseException)] == ["0 1 2 "] * (
                count - len(refused)
            )
