"""The openai provider, with the real SDK, against a server that speaks its wire byte by byte and misbehaves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tests.fakes.openai_server import Fault, OpenAiServer, Script
from tests.fakes.openai_transcript import done, error_event, event, finish_event, usage_event
from tg_base.llm_chunk import LlmChunk
from tg_base.llm_service import joined_chunks
from tg_base.stream_guard import Clocks
from tg_flow.providers.openai_compatible import OpenAiCompatible, OpenAiOptions
from tg_schema import Sampling, TextCompletionRequest, TextCompletionResponse, TgError
from tg_schema.errors import (
    BadRequest,
    ContentFilter,
    IncompleteStream,
    NotFound,
    ProtocolError,
    ProviderAuth,
    RateLimited,
    Timeout,
    TooLarge,
    Unavailable,
)

MODEL = OpenAiServer.model
DATED = f"{MODEL}-2026-01-01"
REQUEST = TextCompletionRequest(system="be brief", prompt="say hello", streaming=True, model="ours")

Open = Callable[..., Coroutine[Any, Any, OpenAiCompatible]]


@pytest.fixture
async def server() -> AsyncIterator[OpenAiServer]:
    async with OpenAiServer.running() as server:
        yield server


@pytest.fixture
async def open_(server: OpenAiServer) -> AsyncIterator[Open]:
    opened: list[OpenAiCompatible] = []

    async def open_provider(**options: Any) -> OpenAiCompatible:
        options = {"base_url": server.url, "key_variable": "", "upstream_model": MODEL} | options
        opened.append(await OpenAiCompatible.open("ours", OpenAiOptions(**options)))
        return opened[-1]

    yield open_provider
    for provider in opened:
        await provider.aclose()


async def chunks(provider: OpenAiCompatible, request: TextCompletionRequest = REQUEST) -> list[LlmChunk]:
    async with aclosing(provider.generate_content_stream(request)) as stream:
        return [chunk async for chunk in stream]


async def responses(
    provider: OpenAiCompatible,
    request: TextCompletionRequest = REQUEST,
    into: list[TextCompletionResponse] | None = None,
) -> list[TextCompletionResponse]:
    received = [] if into is None else into
    async with aclosing(provider.on_request(request)) as stream:
        async for response in stream:
            received.append(response)
    return received


async def test_a_stream_gives_text_finish_and_usage(server: OpenAiServer, open_: Open) -> None:
    received = await chunks(await open_())
    assert joined_chunks(received) == LlmChunk("Hello €!", in_token=11, out_token=3, model=DATED, finish_reason="stop")
    assert all(chunk != LlmChunk(model=DATED) for chunk in received)


async def test_each_piece_leaves_as_it_comes(server: OpenAiServer, open_: Open) -> None:
    server.play(Script(pieces=("one ", "two "), fault=Fault.STALL, after=2))
    provider = await open_()
    async with aclosing(provider.generate_content_stream(REQUEST)) as stream:
        text = ""
        while text != "one two ":
            text += (await anext(stream)).text


async def test_whole_and_streaming_answers_are_the_same(server: OpenAiServer, open_: Open) -> None:
    provider = await open_()
    streamed = await responses(provider)
    whole = await responses(provider, TextCompletionRequest(prompt="say hello"))
    assert TextCompletionResponse.joined(streamed) == tuple(whole)
    assert whole == [
        TextCompletionResponse(
            response="Hello €!", in_token=11, out_token=3, model=DATED, finish_reason="stop", end_of_stream=True
        )
    ]


@pytest.mark.parametrize("cut", [1, 2, 7, 64])
async def test_any_cut_of_the_bytes_gives_the_same_text(server: OpenAiServer, open_: Open, cut: int) -> None:
    pieces = ("Grüße ", "\u2028", "\u0085", "👩‍👩‍👧", "\\n\n\r\n", '"')
    server.play(Script(pieces=pieces, cut=cut))
    assert joined_chunks(await chunks(await open_())).text == "".join(pieces)


async def test_what_comes_in_one_read_is_one_chunk(server: OpenAiServer, open_: Open) -> None:
    server.play(Script(pieces=tuple("abc"), reasoning=("x", "y"), together=True))
    assert await chunks(await open_()) == [
        LlmChunk("abc", in_token=11, out_token=3, model=DATED, finish_reason="stop", reasoning="xy")
    ]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_is_kept_apart(server: OpenAiServer, open_: Open, name: str) -> None:
    server.play(Script(reasoning=("let me ", "think"), reasoning_field=name))
    whole = joined_chunks(await chunks(await open_()))
    assert (whole.text, whole.reasoning) == ("Hello €!", "let me think")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "stop"),
        ("eos_token", "stop"),
    ],
)
async def test_finish_reasons(server: OpenAiServer, open_: Open, theirs: str, ours: str) -> None:
    server.play(Script(finish_reason=theirs))
    assert (await responses(await open_()))[-1].finish_reason == ours


async def test_usage_is_not_needed(server: OpenAiServer, open_: Open) -> None:
    server.play(Script(usage=None))
    last = (await responses(await open_()))[-1]
    assert (last.finish_reason, last.in_token, last.out_token) == ("stop", None, None)


async def test_running_counts_become_deltas(server: OpenAiServer, open_: Open) -> None:
    raw = b"".join(
        [
            event(MODEL, {"content": "a"}).replace(
                b'"usage":null', b'"usage":{"prompt_tokens":11,"completion_tokens":1}'
            ),
            event(MODEL, {"content": "b"}).replace(
                b'"usage":null', b'"usage":{"prompt_tokens":11,"completion_tokens":2}'
            ),
            finish_event(MODEL, "stop"),
            usage_event(MODEL, 11, 3),
            done(),
        ]
    )
    server.play(Script(fault=Fault.RAW, raw=raw, cut=50))
    last = (await responses(await open_()))[-1]
    assert (last.in_token, last.out_token) == (11, 3)


async def test_logprobs_become_tokens(server: OpenAiServer, open_: Open) -> None:
    logprobs = {
        "content": [
            {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": [{"token": "Yo", "logprob": -1.5}]}
        ]
    }
    raw = event(MODEL, {"content": "Hi"}, logprobs=logprobs) + finish_event(MODEL, "stop") + done()
    server.play(Script(fault=Fault.RAW, raw=raw))
    sampling = Sampling(logprobs=1)
    answer = joined_chunks(await chunks(await open_(), TextCompletionRequest(prompt="x", sampling=sampling)))
    (token,) = answer.tokens
    assert (token.text, token.logprob, [logprob for _, logprob in token.top]) == ("Hi", -0.5, [-1.5])
    body = (await server.exchange(0)).body
    assert body is not None
    assert (body.logprobs, body.top_logprobs) == (True, 1)


async def test_every_field_reaches_the_provider(server: OpenAiServer, open_: Open) -> None:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    sampling = Sampling(
        temperature=0.5,
        top_p=0.9,
        max_tokens=50,
        stop=("\n", "END"),
        seed=7,
        presence_penalty=0.25,
        frequency_penalty=-0.25,
        logprobs=0,
    )
    await chunks(await open_(), TextCompletionRequest(system="s", prompt="p", sampling=sampling, schema=schema))
    body = (await server.exchange(0)).body
    assert body is not None
    assert [(message.role, message.content) for message in body.messages] == [("system", "s"), ("user", "p")]
    assert body.stream
    assert body.stream_options is not None
    assert body.stream_options.include_usage
    assert (body.temperature, body.top_p, body.max_tokens, body.stop, body.seed) == (0.5, 0.9, 50, ("\n", "END"), 7)
    assert (body.presence_penalty, body.frequency_penalty) == (0.25, -0.25)
    assert (body.logprobs, body.top_logprobs) == (True, None)
    assert body.response_format is not None
    assert body.response_format.json_schema is not None
    assert (body.response_format.json_schema.schema, body.response_format.json_schema.strict) == (schema, True)


async def test_fields_that_nobody_set_are_not_sent(server: OpenAiServer, open_: Open) -> None:
    await chunks(await open_(), TextCompletionRequest(prompt="p"))
    body = (await server.exchange(0)).body
    assert body is not None
    assert [message.role for message in body.messages] == ["user"]
    assert (body.temperature, body.top_p, body.max_tokens, body.stop, body.seed) == (None,) * 5
    assert (body.logprobs, body.response_format) == (None, None)


async def test_json_without_a_schema(server: OpenAiServer, open_: Open) -> None:
    await chunks(await open_(), TextCompletionRequest(prompt="p", response_format="json"))
    body = (await server.exchange(0)).body
    assert body is not None
    assert body.response_format is not None
    assert body.response_format.type == "json_object"


async def test_defaults_of_the_configuration(server: OpenAiServer, open_: Open) -> None:
    provider = await open_(temperature=0.25, max_tokens=9, max_tokens_field="max_completion_tokens")
    await chunks(provider)
    await chunks(provider, TextCompletionRequest(prompt="p", sampling=Sampling(temperature=1.0)))
    bodies = [exchange.body for exchange in server.exchanges]
    assert [(body.temperature, body.max_tokens, body.max_completion_tokens) for body in bodies if body] == [
        (0.25, None, 9),
        (1.0, None, 9),
    ]


async def test_top_k_is_refused_before_anything_is_sent(server: OpenAiServer, open_: Open) -> None:
    with pytest.raises(BadRequest, match="top_k"):
        await chunks(await open_(), TextCompletionRequest(prompt="p", sampling=Sampling(top_k=5)))
    assert server.exchanges == []


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (Script.refuse(400), BadRequest),
        (Script.refuse(400, "context_length_exceeded"), BadRequest),
        (Script.refuse(400, "content_filter"), ContentFilter),
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
    server: OpenAiServer, open_: Open, script: Script, kind: type[TgError]
) -> None:
    server.play(script)
    provider = await open_(tries=1)
    with pytest.raises(kind) as caught:
        await responses(provider)
    assert type(caught.value) is kind
    assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, asyncio.CancelledError)


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
    server: OpenAiServer, open_: Open, fault: Script, kind: type[TgError]
) -> None:
    server.play(fault)
    provider = await open_()
    received: list[TextCompletionResponse] = []
    with pytest.raises(kind):
        await responses(provider, into=received)
    assert [response.response for response in received] == ["Hel"]
    assert len(server.exchanges) == 1


async def test_nobody_listens(open_: Open, unused_tcp_port: int) -> None:
    provider = await open_(base_url=f"http://127.0.0.1:{unused_tcp_port}/v1", tries=1)
    with pytest.raises(Unavailable, match="cannot be reached"):
        await responses(provider)


@pytest.mark.parametrize(
    ("script", "clocks", "limit"),
    [
        (Script(fault=Fault.STALL_BEFORE_STATUS), Clocks(first_token=0.1), "no first token"),
        (Script(fault=Fault.STALL), Clocks(first_token=0.1), "no first token"),
        (Script(fault=Fault.COMMENTS_ONLY), Clocks(first_token=0.1), "no first token"),
        (Script(fault=Fault.STALL, after=1), Clocks(idle=0.1), "no content"),
        (Script(fault=Fault.COMMENTS_ONLY, after=1), Clocks(idle=0.1), "no content"),
        (Script(fault=Fault.ENDLESS), Clocks(total=0.1), "not finished"),
    ],
)
async def test_a_provider_that_is_too_slow_is_left(
    server: OpenAiServer, open_: Open, script: Script, clocks: Clocks, limit: str
) -> None:
    server.play(script)
    provider = await open_(clocks=clocks)
    with pytest.raises(Timeout, match=limit):
        await responses(provider)
    await asyncio.wait_for((await server.exchange(0)).left.wait(), 1.0)
    assert len(server.exchanges) == 1


@pytest.mark.parametrize("fault", [Fault.STALL_BEFORE_STATUS, Fault.STALL, Fault.COMMENTS_ONLY, Fault.ENDLESS])
async def test_a_cancel_closes_the_providers_socket(server: OpenAiServer, open_: Open, fault: Fault) -> None:
    server.play(Script(fault=fault))
    provider = await open_()
    task = asyncio.create_task(responses(provider))
    exchange = await server.exchange(0)
    await exchange.began.wait()
    task.cancel()
    await asyncio.wait_for(exchange.left.wait(), 1.0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert exchange.sent == exchange.sent_when_left


async def test_leaving_the_stream_closes_the_providers_socket(server: OpenAiServer, open_: Open) -> None:
    server.play(Script(fault=Fault.ENDLESS))
    provider = await open_()
    async with aclosing(provider.on_request(REQUEST)) as stream:
        await anext(stream)
    exchange = await server.exchange(0)
    await asyncio.wait_for(exchange.left.wait(), 1.0)
    assert exchange.sent == exchange.sent_when_left


async def test_a_cancelled_stream_does_not_harm_its_neighbours(server: OpenAiServer, open_: Open) -> None:
    server.play(Script(fault=Fault.ENDLESS), Script())
    provider = await open_()
    async with aclosing(provider.on_request(REQUEST)) as stream:
        await anext(stream)
        neighbours = await asyncio.gather(*(responses(provider) for _ in range(10)))
    assert {"".join(response.response or "" for response in stream) for stream in neighbours} == {"Hello €!"}


@pytest.mark.parametrize("fault", [Fault.STALL_AFTER_FINISH, Fault.ABORT_AFTER_FINISH])
async def test_a_finished_answer_stays_whole_whatever_follows(server: OpenAiServer, open_: Open, fault: Fault) -> None:
    server.play(Script(pieces=("all",), after=1, fault=fault))
    provider = await open_(usage_patience=0.05)
    last = (await responses(provider))[-1]
    assert (last.finish_reason, last.error, last.in_token) == ("stop", None, None)


async def test_connections_are_used_again(server: OpenAiServer, open_: Open) -> None:
    provider = await open_()
    for _ in range(3):
        await chunks(provider)
    assert len({exchange.client for exchange in server.exchanges}) == 1


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
async def test_retry_after(server: OpenAiServer, open_: Open, name: str, value: str, expected: float | None) -> None:
    server.play(Script.refuse(429, **{name: value}))
    provider = await open_(tries=1)
    with pytest.raises(RateLimited) as caught:
        await responses(provider)
    assert caught.value.retry_after == expected


async def test_retry_after_as_a_date(server: OpenAiServer, open_: Open) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    server.play(Script.refuse(429, Retry_After=date))
    with pytest.raises(RateLimited) as caught:
        await responses(await open_(tries=1))
    assert caught.value.retry_after == pytest.approx(100, abs=10)


async def test_a_busy_provider_is_asked_again_when_it_said(server: OpenAiServer, open_: Open) -> None:
    busy = Script.refuse(429, Retry_After="0")
    server.play(busy, busy, Script())
    assert (await responses(await open_()))[-1].finish_reason == "stop"
    assert len(server.exchanges) == 3


async def test_the_key_is_sent_and_never_told(
    server: OpenAiServer, open_: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("SOME_KEY", " sk-canary\n")
    server.key = "sk-canary"
    provider = await open_(key_variable="SOME_KEY", tries=1)
    assert (await responses(provider))[-1].finish_reason == "stop"
    server.key = "another"
    with pytest.raises(ProviderAuth) as caught:
        await responses(provider)
    server.play(Script.refuse(400))
    server.key = "sk-canary"
    with pytest.raises(BadRequest):
        await responses(provider)
    assert "canary" not in str(caught.value) + repr(caught.value) + caplog.text


async def test_no_key_means_no_header(server: OpenAiServer, open_: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-them")
    await chunks(await open_(key_variable=""))
    assert "authorization" not in (await server.exchange(0)).headers


async def test_the_predecessors_variable_is_understood(
    server: OpenAiServer, open_: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_TOKEN", "sk-old")
    server.key = "sk-old"
    assert joined_chunks(await chunks(await open_(key_variable="OPENAI_API_KEY"))).text == "Hello €!"


async def test_a_missing_key_names_its_variable(open_: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THEIR_KEY", raising=False)
    with pytest.raises(ProviderAuth, match="THEIR_KEY is not set"):
        await open_(key_variable="THEIR_KEY")


@pytest.mark.parametrize(
    "url", ["", "localhost:1234", "ftp://x/v1", "http://", "http://user:secret@x/v1", "http://x/?a=b"]
)
async def test_a_wrong_base_url_is_refused_at_once(open_: Open, url: str) -> None:
    with pytest.raises(BadRequest, match="base_url must be") as caught:
        await open_(base_url=url)
    assert "secret" not in str(caught.value)


async def test_the_environments_proxy_is_used(
    server: OpenAiServer, open_: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1"))
    monkeypatch.setenv("no_proxy", "")
    await chunks(await open_(base_url="http://provider.invalid/v1"))
    assert [exchange.path for exchange in server.exchanges] == ["http://provider.invalid/v1/chat/completions"]
