"""The openai provider, against a server that speaks its wire byte by byte, and fails, stalls, lies or is left."""

import asyncio
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests.fakes.openai_server import Fault, OpenAiServer, Script
from tests.fakes.openai_transcript import JsonSchema, done, error_event, event, finish_event, usage_event
from tests.flow.openai_asking import DATED, MODEL, REQUEST, Open, chunks, responses
from tests.within import within
from tg_base.llm import LlmChunk, join_chunks
from tg_base.llm.guard import Clocks
from tg_schema import Sampling, TextCompletionRequest, TextCompletionResponse, TgError
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


async def test_whole_and_streaming_answers_are_the_same(openai_server: OpenAiServer, open_openai: Open) -> None:
    provider = await open_openai()
    streamed = await responses(provider)
    whole = await responses(provider, TextCompletionRequest(prompt="say hello"))
    assert TextCompletionResponse.join(streamed) == tuple(whole)
    assert whole == [
        TextCompletionResponse(
            response="Hello €!", in_token=11, out_token=3, model=DATED, finish_reason="stop", end_of_stream=True
        )
    ]


@pytest.mark.parametrize("cut", [1, 2, 7, 64])
async def test_any_cut_of_the_bytes_gives_the_same_text(
    openai_server: OpenAiServer, open_openai: Open, cut: int
) -> None:
    pieces = ("Grüße ", "\u2028", "\u0085", "👩‍👩‍👧", "\\n\n\r\n", '"')
    openai_server.play(Script(pieces=pieces, cut=cut))
    (whole,) = join_chunks(await chunks(await open_openai()))
    assert whole.text == "".join(pieces)


async def test_what_comes_in_one_read_is_one_chunk(openai_server: OpenAiServer, open_openai: Open) -> None:
    openai_server.play(Script(pieces=tuple("abc"), reasoning=("x", "y"), together=True))
    assert await chunks(await open_openai()) == [
        LlmChunk("abc", in_token=11, out_token=3, model=DATED, finish_reason="stop", reasoning="xy")
    ]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_is_kept_apart(openai_server: OpenAiServer, open_openai: Open, name: str) -> None:
    openai_server.play(Script(reasoning=("let me ", "think"), reasoning_field=name))
    (whole,) = join_chunks(await chunks(await open_openai()))
    assert (whole.text, whole.reasoning) == ("Hello €!", "let me think")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("eos_token", "stop"),
    ],
)
async def test_finish_reasons(openai_server: OpenAiServer, open_openai: Open, theirs: str, ours: str) -> None:
    openai_server.play(Script(finish_reason=theirs))
    assert (await responses(await open_openai()))[-1].finish_reason == ours


async def test_running_counts_become_deltas(openai_server: OpenAiServer, open_openai: Open) -> None:
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
    openai_server.play(Script(fault=Fault.RAW, raw=raw, cut=50))
    last = (await responses(await open_openai()))[-1]
    assert (last.in_token, last.out_token) == (11, 3)


async def test_logprobs_become_tokens(openai_server: OpenAiServer, open_openai: Open) -> None:
    logprobs = {
        "content": [
            {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": [{"token": "Yo", "logprob": -1.5}]}
        ]
    }
    raw = event(MODEL, {"content": "Hi"}, logprobs=logprobs) + finish_event(MODEL, "stop") + done()
    openai_server.play(Script(fault=Fault.RAW, raw=raw))
    sampling = Sampling(logprobs=1)
    (answer,) = join_chunks(await chunks(await open_openai(), TextCompletionRequest(prompt="x", sampling=sampling)))
    (token,) = answer.tokens
    assert (token.text, token.logprob, [logprob for _, logprob in token.top]) == ("Hi", -0.5, [-1.5])
    body = (await openai_server.exchange(0)).body
    assert body is not None
    assert (body.logprobs, body.top_logprobs) == (True, 1)


async def test_every_field_reaches_the_provider(openai_server: OpenAiServer, open_openai: Open) -> None:
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
    request = TextCompletionRequest(
        system="s",
        prompt="p",
        sampling=sampling,
        schema=schema,
        schema_name="place",
        schema_description="Where",
        schema_strict=True,
    )
    await chunks(await open_openai(), request)
    body = (await openai_server.exchange(0)).body
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
    assert body.response_format.json_schema == JsonSchema("place", schema, "Where", strict=True)


async def test_fields_that_nobody_set_are_not_sent(openai_server: OpenAiServer, open_openai: Open) -> None:
    await chunks(await open_openai(), TextCompletionRequest(prompt="p"))
    body = (await openai_server.exchange(0)).body
    assert body is not None
    assert [message.role for message in body.messages] == ["user"]
    assert (body.temperature, body.top_p, body.max_tokens, body.stop, body.seed) == (None,) * 5
    assert (body.logprobs, body.response_format) == (None, None)


async def test_defaults_of_the_configuration(openai_server: OpenAiServer, open_openai: Open) -> None:
    provider = await open_openai(temperature=0.25, max_tokens=9, max_tokens_field="max_completion_tokens")
    await chunks(provider)
    await chunks(provider, TextCompletionRequest(prompt="p", sampling=Sampling(temperature=1.0)))
    bodies = [exchange.body for exchange in openai_server.exchanges]
    assert [(body.temperature, body.max_tokens, body.max_completion_tokens) for body in bodies if body] == [
        (0.25, None, 9),
        (1.0, None, 9),
    ]


async def test_connections_are_used_again(openai_server: OpenAiServer, open_openai: Open) -> None:
    provider = await open_openai()
    for _ in range(3):
        await chunks(provider)
    assert len({exchange.client for exchange in openai_server.exchanges}) == 1


async def test_the_key_is_sent_and_never_told(
    openai_server: OpenAiServer, open_openai: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("SOME_KEY", " sk-canary\n")
    openai_server.key = "sk-canary"
    provider = await open_openai(key_variable="SOME_KEY", tries=1)
    assert (await responses(provider))[-1].finish_reason == "stop"
    openai_server.key = "another"
    with pytest.raises(ProviderAuth) as caught:
        await responses(provider)
    openai_server.play(Script.refuse(400))
    openai_server.key = "sk-canary"
    with pytest.raises(BadRequest):
        await responses(provider)
    assert "canary" not in str(caught.value) + repr(caught.value) + caplog.text


@pytest.mark.parametrize(
    "url", ["", "localhost:1234", "ftp://x/v1", "http://", "http://user:secret@x/v1", "http://x/?a=b"]
)
async def test_a_wrong_base_url_is_refused_at_once(open_openai: Open, url: str) -> None:
    with pytest.raises(BadRequest, match="base_url must be") as caught:
        await open_openai(base_url=url)
    assert "secret" not in str(caught.value)


async def test_the_environments_proxy_is_used(
    openai_server: OpenAiServer, open_openai: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", openai_server.url.removesuffix("/v1"))
    monkeypatch.setenv("no_proxy", "")
    await chunks(await open_openai(base_url="http://provider.invalid/v1"))
    assert [exchange.path for exchange in openai_server.exchanges] == ["http://provider.invalid/v1/chat/completions"]


async def test_a_proxy_that_does_not_answer_is_named(open_openai: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(Unavailable, match="through the proxy that HTTPS_PROXY or HTTP_PROXY names"):
        await chunks(await open_openai(base_url="http://provider.invalid/v1", tries=1))


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
