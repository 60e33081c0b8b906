"""The openai provider, with the real SDK, against a server that speaks its wire byte by byte and misbehaves."""

from contextlib import aclosing

import pytest

from tests.fakes.openai_server import Fault, OpenAiServer, Script
from tests.fakes.openai_transcript import JsonSchema, done, event, finish_event, usage_event
from tests.flow.openai_asking import DATED, MODEL, REQUEST, Open, chunks, responses
from tg_base.llm import LlmChunk, join_chunks
from tg_schema import Sampling, TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import BadRequest, ProviderAuth, Unavailable


async def test_a_stream_gives_text_finish_and_usage(openai_server: OpenAiServer, open_openai: Open) -> None:
    received = await chunks(await open_openai())
    assert join_chunks(received) == (LlmChunk("Hello €!", in_token=11, out_token=3, model=DATED, finish_reason="stop"),)
    assert all(chunk != LlmChunk(model=DATED) for chunk in received)


async def test_each_piece_leaves_as_it_comes(openai_server: OpenAiServer, open_openai: Open) -> None:
    openai_server.play(Script(pieces=("one ", "two "), fault=Fault.STALL, after=2))
    provider = await open_openai()
    async with aclosing(provider.generate_content_stream(REQUEST)) as stream:
        text = ""
        while text != "one two ":
            text += (await anext(stream)).text


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


async def test_usage_is_not_needed(openai_server: OpenAiServer, open_openai: Open) -> None:
    openai_server.play(Script(usage=None))
    last = (await responses(await open_openai()))[-1]
    assert (last.finish_reason, last.in_token, last.out_token) == ("stop", None, None)


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


async def test_json_without_a_schema(openai_server: OpenAiServer, open_openai: Open) -> None:
    await chunks(await open_openai(), TextCompletionRequest(prompt="p", response_format="json"))
    body = (await openai_server.exchange(0)).body
    assert body is not None
    assert body.response_format is not None
    assert body.response_format.type == "json_object"


async def test_defaults_of_the_configuration(openai_server: OpenAiServer, open_openai: Open) -> None:
    provider = await open_openai(temperature=0.25, max_tokens=9, max_tokens_field="max_completion_tokens")
    await chunks(provider)
    await chunks(provider, TextCompletionRequest(prompt="p", sampling=Sampling(temperature=1.0)))
    bodies = [exchange.body for exchange in openai_server.exchanges]
    assert [(body.temperature, body.max_tokens, body.max_completion_tokens) for body in bodies if body] == [
        (0.25, None, 9),
        (1.0, None, 9),
    ]


async def test_top_k_is_refused_before_anything_is_sent(openai_server: OpenAiServer, open_openai: Open) -> None:
    with pytest.raises(BadRequest, match="top_k"):
        await responses(await open_openai(), TextCompletionRequest(prompt="p", sampling=Sampling(top_k=5)))
    assert openai_server.exchanges == []


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


async def test_no_key_means_no_header(
    openai_server: OpenAiServer, open_openai: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-them")
    await chunks(await open_openai(key_variable=""))
    assert "authorization" not in (await openai_server.exchange(0)).headers


async def test_the_predecessors_variable_is_understood(
    openai_server: OpenAiServer, open_openai: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_TOKEN", "sk-old")
    openai_server.key = "sk-old"
    (whole,) = join_chunks(await chunks(await open_openai(key_variable=None)))
    assert whole.text == "Hello €!"


async def test_a_missing_key_names_its_variable(open_openai: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THEIR_KEY", raising=False)
    with pytest.raises(ProviderAuth, match="THEIR_KEY is not set"):
        await open_openai(key_variable="THEIR_KEY")


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
