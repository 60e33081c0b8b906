"""The columns for how a provider behaves when its server fails, stalls, lies or is left."""

import asyncio
from collections.abc import Awaitable, MutableMapping
from contextlib import aclosing, suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.fakes.loopback_server import LoopbackServer
from tests.fakes.plan import Counts, Fault, Plan
from tests.provider_matrix.asking import (
    REQUEST,
    WHOLE,
    joined,
    responses,
)
from tests.provider_matrix.case import MODEL, Stage
from tests.provider_matrix.cell import Cell
from tests.until import AT_ONCE_SECONDS
from tests.within import within
from tg_base.llm.guard import Clocks
from tg_base.telemetry import Span, trace
from tg_schema import TextCompletionResponse, TgError
from tg_schema.errors import (
    BadRequest,
    ContextLengthExceeded,
    IncompleteStream,
    NotFound,
    ProtocolError,
    ProviderAuth,
    RateLimited,
    Timeout,
    TooLarge,
    Unavailable,
)

ABSURD = 10**399
"""A count of 400 digits."""

_TOLD = ("status", "code", "upstream_request")
_SAID = frozenset({"event", "log_level", "model", "provider", "server", "address", "error", *_TOLD})
"""All that a line may say of a refusal: the provider's words are not among it."""
_REFUSAL_EVENTS = frozenset({"provider.refused", "pool.failover"})


async def _error_before(stage: Stage) -> None:
    for kind in (BadRequest, ContextLengthExceeded, ProviderAuth, NotFound, RateLimited, Unavailable):
        for request in (REQUEST, WHOLE):
            stage.wire.play(Plan(fault=Fault.REFUSE, error=kind))
            async with stage.opened() as service:
                await _fails(responses(service, request), kind)
    asked = len(stage.wire.exchanges)
    stage.wire.play(Plan(fault=Fault.REFUSE, error=RateLimited, retry_after=0), Plan())
    async with stage.opened(tries=2) as service:
        assert joined(await responses(service)).response == "Hello €!"
    assert len(stage.wire.exchanges) == asked + 2


async def _retry_after(stage: Stage) -> None:
    stage.wire.play(Plan(fault=Fault.REFUSE, error=RateLimited, retry_after=90))
    async with stage.opened(tries=3) as service:
        error = await _fails(responses(service), RateLimited)
    assert error.retry_after == 90
    assert len(stage.wire.exchanges) == 1


async def _refusal_line(stage: Stage) -> None:
    """Each refusal is told in the log with what the provider says of it, also where another server is asked next.

    The server has the request's ids, and can say in its own log which line of ours it means.
    """
    wire, span = stage.wire, Span.at_door("r-1", None)
    trace.enter(span)
    assert isinstance(wire, LoopbackServer)
    wire.play(Plan(fault=Fault.REFUSE, error=Unavailable))
    logs: list[MutableMapping[str, Any]]
    with capture_logs() as logs:
        for request in (REQUEST, WHOLE):
            async with stage.opened() as service:
                await _fails(responses(service, request), Unavailable)
    lines = [line for line in logs if line["event"] in _REFUSAL_EVENTS]
    assert {(line["model"], line["provider"]) for line in lines} == {(MODEL, stage.case.provider)}
    assert all(_SAID.issuperset(line) for line in lines)
    for sent in wire.exchanges:
        assert (sent.headers["x-request-id"], sent.headers["traceparent"]) == ("r-1", span.traceparent)
    told = [{name: line[name] for name in _TOLD if name in line} for line in lines]
    said = [
        {
            "status": exchange.refused,
            **({"code": wire.unavailable} if wire.unavailable else {}),
            **({"upstream_request": f"req_{number}"} if wire.request_header else {}),
        }
        for number, exchange in enumerate(wire.exchanges, 1)
    ]
    assert len(said) >= 2
    assert [line for line in said if line not in told] == [line for line in told if line not in said] == []
    assert len(told) >= len(said)


async def _fails(awaitable: Awaitable[object], kind: type[TgError]) -> TgError:
    with pytest.raises(TgError) as caught:
        await awaitable
    assert type(caught.value) is kind, caught.value
    return caught.value


async def _error_in_the_middle(stage: Stage) -> None:
    stage.wire.play(Plan(fault=Fault.ERROR, after=1))
    await _cut_short(stage, Unavailable)


async def _early_end(stage: Stage) -> None:
    stage.wire.play(Plan(fault=Fault.END, after=1))
    await _cut_short(stage, IncompleteStream)


async def _broken_connection(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.wire.play(Plan(fault=Fault.ABORT, after=1, gate=gate))
    await _cut_short(stage, IncompleteStream, gate)


async def _garbage(stage: Stage) -> None:
    stage.wire.play(Plan(fault=Fault.GARBAGE, after=1))
    await _cut_short(stage, ProtocolError)


async def _cut_short(stage: Stage, kind: type[TgError], gate: asyncio.Event | None = None) -> None:
    """The text comes, which opens the gate, then the error; and nothing is tried again once something was sent."""
    received: list[TextCompletionResponse] = []
    async with stage.opened(tries=3) as service:
        await _fails(responses(service, into=received, began=gate), kind)
    assert "".join(record.response or "" for record in received) == "Hel"
    assert not any(record.end_of_stream for record in received)
    assert len(stage.wire.exchanges) == 1
    async with stage.opened() as service:
        await _fails(responses(service, WHOLE), kind)


async def _keep_alive_only(stage: Stage) -> None:
    clocks = Clocks(first_token=20, idle=0.2)
    stage.wire.play(Plan(fault=Fault.KEEP_ALIVE, after=1))
    async with stage.opened(clocks=clocks) as service:
        error = await _fails(responses(service), Timeout)
    assert "no content" in error.message
    await within(AT_ONCE_SECONDS, (await stage.wire.exchange(0)).left.wait())
    stage.wire.play(Plan(), Plan(fault=Fault.KEEP_ALIVE))
    async with stage.opened() as service, aclosing(service.generate_content_stream(REQUEST)) as stream:
        async for _ in stream:  # loads what the SDK loads late
            pass
    # On a slow machine the time may be over before the provider has been asked.
    for seconds in (0.2, 2.0, 10.0):
        async with stage.opened(clocks=Clocks(first_token=seconds)) as service:
            error = await _fails(responses(service), Timeout)
        assert "first token" in error.message
        with suppress(TimeoutError):
            exchange = await within(1, stage.wire.exchange(2))
            break
    await within(AT_ONCE_SECONDS, exchange.left.wait())


async def _cancel(stage: Stage) -> None:
    async with stage.opened() as service:
        plans = (Plan(fault=Fault.SILENCE), Plan(fault=Fault.STALL), Plan(fault=Fault.STALL, after=1))
        for number, plan in enumerate(plans):
            stage.wire.play(plan)
            task = asyncio.create_task(responses(service))
            exchange = await stage.wire.exchange(number)
            await exchange.began.wait()
            task.cancel()
            await within(AT_ONCE_SECONDS, exchange.left.wait())
            with pytest.raises(asyncio.CancelledError):
                await task
        stage.wire.play(Plan(fault=Fault.STALL, after=1))
        async with aclosing(service.on_request(REQUEST)) as stream:
            assert (await anext(stream)).response == "Hel"
        await within(AT_ONCE_SECONDS, (await stage.wire.exchange(3)).left.wait())
        stage.wire.play(Plan())
        assert joined(await responses(service)).response == "Hello €!"


async def _split_utf8(stage: Stage) -> None:
    text = ("Grüße ", "\u2028", "\u0085", "👩‍👩‍👧", "\\n\n\r\n", '"')
    for cut in (1, 3, 64):
        stage.wire.play(Plan(text=text, cut=cut))
        async with stage.opened() as service:
            assert joined(await responses(service)).response == "".join(text)


async def _text_after_the_end(stage: Stage) -> None:
    stage.wire.play(Plan(fault=Fault.TEXT_AFTER_FINISH))
    for request in (REQUEST, WHOLE):
        async with stage.opened() as service:
            answer = joined(await responses(service, request))
        assert (answer.response, answer.finish_reason) == ("Hello €!", "stop")


async def _absurd_usage(stage: Stage) -> None:
    """The answer is whole, and its usage is what was told before; Claude's has one token in its first event."""
    stage.wire.play(Plan(counts=Counts(ABSURD, ABSURD, 0, 0, 0)))
    for request in (REQUEST, WHOLE):
        async with stage.opened() as service:
            answer = joined(await responses(service, request))
        assert (answer.response, answer.finish_reason) == ("Hello €!", "stop")
        assert (answer.in_token or 0) + (answer.out_token or 0) <= 1


async def _endless_text(stage: Stage) -> None:
    stage.wire.play(Plan(fault=Fault.ENDLESS_TEXT))
    async with stage.opened() as service:
        await _fails(responses(service, WHOLE), TooLarge)
        await asyncio.wait_for((await stage.wire.exchange(0)).left.wait(), 10)


async def _endless_head(stage: Stage) -> None:
    """Interim responses for ever, or a compressed body that nobody asked for: neither is waited for, nor inflated."""
    for number, fault in enumerate((Fault.ENDLESS_CONTINUE, Fault.COMPRESSED)):
        stage.wire.play(Plan(fault=fault))
        async with stage.opened(clocks=Clocks(first_token=20)) as service:
            await _fails(responses(service), ProtocolError)
            await asyncio.wait_for((await stage.wire.exchange(number)).left.wait(), 10)


FAULT_CELLS: tuple[Cell, ...] = (
    Cell("error before", _error_before),
    Cell("log of a refusal", _refusal_line),
    Cell("Retry-After", _retry_after, tells="retry_after"),
    Cell("error in the middle", _error_in_the_middle, tells="error_event"),
    Cell("early end", _early_end),
    Cell("broken connection", _broken_connection),
    Cell("garbage", _garbage),
    Cell("keep-alive only", _keep_alive_only),
    Cell("cancel", _cancel),
    Cell("split UTF-8", _split_utf8),
    Cell("text after the end", _text_after_the_end),
    Cell("absurd usage", _absurd_usage),
    Cell("endless text", _endless_text),
    Cell("endless head", _endless_head),
)
