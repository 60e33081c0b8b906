"""The openai provider when its server fails, stalls, lies or is left."""

import asyncio
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import structlog

from tests.fakes.openai_server import Fault, OpenAiServer, Script
from tests.fakes.openai_transcript import error_event, event
from tests.flow.openai_asking import MODEL, REQUEST, Open, responses
from tests.within import within
from tg_base.llm.guard import Clocks
from tg_schema import TextCompletionResponse, TgError
from tg_schema.errors import (
    BadRequest,
    ContentFilter,
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


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (Script.refuse(400), BadRequest),
        (Script.refuse(400, "context_length_exceeded"), ContextLengthExceeded),
        (Script.refuse(400, "content_filter"), ContentFilter),
        (Script.refuse(400, "unsupported_parameter"), BadRequest),
        (Script.refuse(400, kind="api_error"), BadRequest),
        (Script.refuse(400, kind="exceed_context_size_error"), ContextLengthExceeded),
        (Script.refuse(401, "invalid_api_key"), ProviderAuth),
        (Script.refuse(403), ProviderAuth),
        (Script.refuse(404), NotFound),
        (Script.refuse(404, "model_not_found"), NotFound),
        (Script.refuse(413), TooLarge),
        (Script.refuse(422), BadRequest),
        (Script.refuse(429, "rate_limit_exceeded"), RateLimited),
        (Script.refuse(429, "insufficient_quota"), ProviderAuth),
        (Script.refuse(500, "server_error"), Unavailable),
        (Script.refuse(503), Unavailable),
        (Script(fault=Fault.STATUS, status=502, body=b"<html>Bad Gateway</html>"), Unavailable),
        (Script(fault=Fault.STATUS, status=500, body=b"[" * 60_000), Unavailable),
        (Script(fault=Fault.STATUS, status=400, body=b"x" * 10_000_000), BadRequest),
        (Script(fault=Fault.STATUS, status=307, headers=(("Location", "http://127.0.0.1:9/v1"),)), ProtocolError),
        (Script(fault=Fault.STATUS, status=204), IncompleteStream),
        (
            Script(fault=Fault.STATUS, status=200, body=b"{}", headers=(("Content-Type", "application/json"),)),
            ProtocolError,
        ),
        (
            Script(fault=Fault.STATUS, status=200, body=b"<html>", headers=(("Content-Type", "text/html"),)),
            ProtocolError,
        ),
        (Script(fault=Fault.RAW, raw=b"data: {nonsense\n\n"), ProtocolError),
        (Script(fault=Fault.RAW, raw=b'data: {"choices":"many"}\n\n'), ProtocolError),
        (Script(fault=Fault.RAW, raw=b"data: " + b"[" * 100_000 + b"\n\n"), ProtocolError),
        (Script(fault=Fault.RAW, raw=b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n'), ProtocolError),
        (Script(fault=Fault.RAW, raw=b"data: " + b"x" * 2_000_000), ProtocolError),
        (Script(fault=Fault.RAW, raw=bytes(range(256))), IncompleteStream),
        (Script(fault=Fault.RAW, raw=error_event("server_error", "server_error")), Unavailable),
        (Script(fault=Fault.RAW, raw=error_event(None, "invalid_request_error")), BadRequest),
        (Script(fault=Fault.RAW, raw=error_event(429, "Too Many")), RateLimited),
        (Script(fault=Fault.RAW, raw=error_event("400", "BadRequestError")), BadRequest),
        (Script(fault=Fault.RAW, raw=error_event("content_filter", None)), ContentFilter),
        (Script(fault=Fault.RAW, raw=b'data: {"error":"CUDA died"}\n\n'), Unavailable),
        (Script(fault=Fault.RAW, raw=event(MODEL, {}, "error")), Unavailable),
        (Script(fault=Fault.RAW, raw=event(MODEL, {"refusal": "I will not"})), ContentFilter),
        (Script(fault=Fault.ABORT_BEFORE_STATUS), Unavailable),
        (Script(fault=Fault.ABORT), IncompleteStream),
        (Script(fault=Fault.CLEAN_END), IncompleteStream),
        (Script(fault=Fault.DONE_WITHOUT_FINISH), IncompleteStream),
    ],
)
async def test_each_fault_is_one_typed_error(
    openai_server: OpenAiServer, open_openai: Open, script: Script, kind: type[TgError]
) -> None:
    openai_server.play(script)
    provider = await open_openai(tries=1)
    with pytest.raises(kind) as caught:
        await responses(provider)
    assert type(caught.value) is kind
    assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, asyncio.CancelledError)


async def test_each_refusal_is_a_line_with_what_the_providers_support_asks_for(
    openai_server: OpenAiServer, open_openai: Open
) -> None:
    busy = Script.refuse(429, "rate_limit_exceeded", x_request_id="first", retry_after="0")
    openai_server.play(busy, Script.refuse(400, "weird_code", apim_request_id="second"))
    provider = await open_openai(tries=2)
    with structlog.testing.capture_logs() as lines, pytest.raises(BadRequest):
        await responses(provider)
    about = {
        "event": "provider.refused", "log_level": "warning", "model": provider.model, "provider": "OpenAiCompatible",
    }  # fmt: skip
    assert [line for line in lines if line["event"] == "provider.refused"] == [
        {**about, "status": 429, "code": "rate_limit_exceeded", "upstream_request": "first"},
        {**about, "status": 400, "code": "weird_code", "upstream_request": "second"},
    ]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Script(fault=Fault.ABORT, after=1), IncompleteStream),
        (Script(fault=Fault.CLEAN_END, after=1), IncompleteStream),
        (Script(fault=Fault.DONE_WITHOUT_FINISH, after=1), IncompleteStream),
        (Script(fault=Fault.RAW, raw=b"data: {\n\n", after=1), ProtocolError),
        (Script(fault=Fault.RAW, raw=error_event("server_error", None), after=1), Unavailable),
        (Script(fault=Fault.RAW, raw=error_event("server_error", None), after=1, together=True), Unavailable),
    ],
)
async def test_a_fault_in_mid_stream_comes_after_the_text_and_is_not_tried_again(
    openai_server: OpenAiServer, open_openai: Open, fault: Script, kind: type[TgError]
) -> None:
    openai_server.play(fault)
    provider = await open_openai()
    received: list[TextCompletionResponse] = []
    with pytest.raises(kind):
        await responses(provider, into=received)
    assert [response.response for response in received] == ["Hel"]
    assert len(openai_server.exchanges) == 1


async def test_nobody_listens(open_openai: Open, unused_tcp_port: int) -> None:
    provider = await open_openai(base_url=f"http://127.0.0.1:{unused_tcp_port}/v1", tries=1)
    with pytest.raises(Unavailable, match="cannot be reached"):
        await responses(provider)


@pytest.mark.parametrize(
    ("script", "clock", "limit"),
    [
        (Script(fault=Fault.STALL_BEFORE_STATUS), "first_token", "no first token"),
        (Script(fault=Fault.STALL), "first_token", "no first token"),
        (Script(fault=Fault.COMMENTS_ONLY), "first_token", "no first token"),
        (Script(fault=Fault.STALL, after=1), "idle", "no content"),
        (Script(fault=Fault.COMMENTS_ONLY, after=1), "idle", "no content"),
        (Script(fault=Fault.ENDLESS), "total", "not finished"),
    ],
)
async def test_a_provider_that_is_too_slow_is_left(
    openai_server: OpenAiServer, open_openai: Open, script: Script, clock: str, limit: str
) -> None:
    openai_server.play(script)
    # On a slow machine the time may be over before the provider has been asked.
    for seconds in (0.1, 1.0, 10.0):
        provider = await open_openai(clocks=Clocks(**{clock: seconds}))
        with pytest.raises(Timeout, match=limit):
            await responses(provider)
        with suppress(TimeoutError):
            exchange = await within(1, openai_server.exchange(0))
            break
    await within(1, exchange.left.wait())
    assert len(openai_server.exchanges) == 1


@pytest.mark.parametrize("fault", [Fault.STALL_BEFORE_STATUS, Fault.STALL, Fault.COMMENTS_ONLY, Fault.ENDLESS])
async def test_a_cancel_closes_the_providers_socket(
    openai_server: OpenAiServer, open_openai: Open, fault: Fault
) -> None:
    openai_server.play(Script(fault=fault))
    provider = await open_openai()
    task = asyncio.create_task(responses(provider))
    exchange = await openai_server.exchange(0)
    await exchange.began.wait()
    task.cancel()
    await within(1, exchange.left.wait())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert exchange.sent == exchange.sent_when_left


async def test_leaving_the_stream_closes_the_providers_socket(openai_server: OpenAiServer, open_openai: Open) -> None:
    openai_server.play(Script(fault=Fault.ENDLESS))
    provider = await open_openai()
    async with aclosing(provider.on_request(REQUEST)) as stream:
        await anext(stream)
    exchange = await openai_server.exchange(0)
    await within(1, exchange.left.wait())
    assert exchange.sent == exchange.sent_when_left


async def test_a_cancelled_stream_does_not_harm_its_neighbours(openai_server: OpenAiServer, open_openai: Open) -> None:
    openai_server.play(Script(fault=Fault.ENDLESS), Script())
    provider = await open_openai()
    async with aclosing(provider.on_request(REQUEST)) as stream:
        await anext(stream)
        neighbours = await asyncio.gather(*(responses(provider) for _ in range(10)))
    assert {"".join(response.response or "" for response in stream) for stream in neighbours} == {"Hello €!"}


@pytest.mark.parametrize("fault", [Fault.STALL_AFTER_FINISH, Fault.ABORT_AFTER_FINISH])
async def test_a_finished_answer_stays_whole_whatever_follows(
    openai_server: OpenAiServer, open_openai: Open, fault: Fault
) -> None:
    openai_server.play(Script(pieces=("all",), after=1, fault=fault))
    provider = await open_openai(usage_patience=0.05)
    last = (await responses(provider))[-1]
    assert (last.finish_reason, last.error, last.in_token) == ("stop", None, None)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Retry_After", "0", 0.0),
        ("Retry_After", "7", 7.0),
        ("Retry_After", "-3", 0.0),
        ("Retry_After", "99999999", 3600.0),
        ("Retry_After", "soon", None),
        ("Retry_After", "nan", None),
        ("Retry_After", "Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("retry_after_ms", "250", 0.25),
        ("x_nothing", "1", None),
    ],
)
async def test_retry_after(
    openai_server: OpenAiServer, open_openai: Open, name: str, value: str, expected: float | None
) -> None:
    openai_server.play(Script.refuse(429, **{name: value}))
    provider = await open_openai(tries=1)
    with pytest.raises(RateLimited) as caught:
        await responses(provider)
    assert caught.value.retry_after == expected


async def test_retry_after_as_a_date(openai_server: OpenAiServer, open_openai: Open) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    openai_server.play(Script.refuse(429, Retry_After=date))
    with pytest.raises(RateLimited) as caught:
        await responses(await open_openai(tries=1))
    assert caught.value.retry_after == pytest.approx(100, abs=10)


async def test_a_busy_provider_is_asked_again_when_it_said(openai_server: OpenAiServer, open_openai: Open) -> None:
    busy = Script.refuse(429, Retry_After="0")
    openai_server.play(busy, busy, Script())
    assert (await responses(await open_openai()))[-1].finish_reason == "stop"
    assert len(openai_server.exchanges) == 3
