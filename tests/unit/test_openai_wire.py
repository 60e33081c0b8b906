"""OpenAI's chat completions <-> our records, value by value."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from tests.fakes.openai_transcript import event, finish_event, usage_event
from tests.flow.known_providers import native_features
from tg_base.llm import LlmChunk, status_error
from tg_flow.providers.openai import AzureOpenAi, OpenAi, OpenAiCompatible, Vllm
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_flow.providers.openai.request import ThinkingField, to_wire
from tg_flow.providers.openai.stream import StreamDecoder
from tg_schema import Message, Sampling, TextCompletionRequest, TextPart, Token, Tool, ToolCall, ToolCallDelta
from tg_schema.conversation import ForeignPart, ReasoningPart
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Foreign, Reasoning

QUESTION = Message("user", "x")
CLOCK, WEATHER = Tool("clock"), Tool("weather", strict=True)


def body(
    request: TextCompletionRequest, *, developer: bool = False, thinking_field: ThinkingField | None = None
) -> dict[str, Any]:
    asked = to_wire(
        request,
        "m",
        request.sampling or Sampling(),
        completion_tokens=False,
        strict=True,
        developer=developer,
        thinking_field=thinking_field,
    )
    sent: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(asked))
    return sent


def sent_by(options: OpenAiOptions, request: TextCompletionRequest) -> dict[str, Any]:
    """What a provider with these options sends; it asks nobody."""
    provider = OpenAiCompatible("m", options, None)  # type: ignore[arg-type]
    sent: dict[str, Any] = msgspec.json.decode(provider.body(request))
    return sent


def chunks(*events: bytes, thinking_field: ThinkingField | None = None) -> list[LlmChunk]:
    answer = StreamDecoder(thinking_field)
    read = [answer.chunk(each.partition(b"data: ")[2].strip()) for each in events]
    return [chunk for chunk in read if chunk is not None]


@pytest.mark.parametrize(
    "options",
    [OpenAiOptions(), OpenAiOptions(upstream_model='",\\"messages":[]', temperature=0.5, extra_body={"messages": []})],
)
def test_a_body_is_its_chat_and_what_the_configuration_adds(options: OpenAiOptions) -> None:
    provider = OpenAiCompatible("m", options, None)  # type: ignore[arg-type]
    samplings = [None, Sampling(), Sampling(max_tokens=7), Sampling(stop=("x",)), Sampling(seed=1)]
    samplings += [Sampling(max_tokens=number) for number in range(10, 74)]
    for sampling in samplings * 2:
        for text in ("p", '"messages":[]'):
            request = TextCompletionRequest(system="s", messages=(QUESTION,), prompt=text, sampling=sampling)
            assert provider.body(request) == msgspec.json.encode(provider.make_chat(request) | options.extra_body)


def test_samplings_are_not_kept() -> None:
    provider = OpenAiCompatible("m", OpenAiOptions(), None)  # type: ignore[arg-type]

    tracemalloc.start()
    try:
        for number in range(20):
            stop, bias = (f"{number}" * 5000,), {each: float(number) for each in range(1000)}
            for sampling in (Sampling(stop=stop), Sampling(logit_bias=bias)):
                asked = TextCompletionRequest(prompt="p", sampling=sampling)
                assert provider.body(asked) == msgspec.json.encode(provider.make_chat(asked))
        del stop, bias, sampling, asked
        assert tracemalloc.get_traced_memory()[0] < 64 * 1024
    finally:
        tracemalloc.stop()


def test_fields_of_the_answer() -> None:
    sampling = Sampling(n=2, logit_bias={5: -100.0})
    sent = body(TextCompletionRequest(prompt="p", sampling=sampling, reasoning=Reasoning("low")))
    assert (sent["n"], sent["logit_bias"], sent["reasoning_effort"]) == (2, {"5": -100.0}, "low")


def test_fields_of_compatible_servers() -> None:
    sampling = Sampling(
        min_p=0.1,
        repetition_penalty=1.5,
        length_penalty=0.5,
        min_tokens=2,
        ignore_eos=True,
        stop_ids=(7,),
        keep_stop=True,
    )
    sent = body(TextCompletionRequest(prompt="p", sampling=sampling, regex="a+"))
    for name in ("model", "messages", "stream", "stream_options"):
        del sent[name]
    assert sent == {
        "min_p": 0.1,
        "repetition_penalty": 1.5,
        "length_penalty": 0.5,
        "min_tokens": 2,
        "ignore_eos": True,
        "stop_token_ids": [7],
        "include_stop_str_in_output": True,
        "structured_outputs": {"regex": "a+"},
    }
    assert body(TextCompletionRequest(prompt="p", choice=("a", "b")))["structured_outputs"] == {"choice": ["a", "b"]}


def test_only_vllm_announces_its_own_fields() -> None:
    own = {"min_p", "stop_ids", "regex"}
    assert own <= Vllm.features
    for provider in ("openai", "openai-compatible", "lm-studio", "azure-openai", "tgi"):
        assert not own & native_features(provider, {})


@pytest.mark.parametrize(
    ("reasoning", "effort"),
    [
        (Reasoning("max"), "max"),
        (Reasoning("none"), "none"),
        (Reasoning("high", 100), "high"),
        (Reasoning("high", 0), "none"),
        (Reasoning(budget=0), "none"),
        (Reasoning(budget=100), "minimal"),
        (Reasoning(budget=8191), "low"),
        (Reasoning(budget=8192), "medium"),
        (Reasoning(budget=99_999), "max"),
        (Reasoning(), None),
        (None, None),
    ],
)
def test_effort(reasoning: Reasoning | None, effort: str | None) -> None:
    assert body(TextCompletionRequest(prompt="p", reasoning=reasoning)).get("reasoning_effort") == effort


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (None, {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function"}]}}),
        ("required", {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function"}]}}),
        ("none", "none"),
        ("clock", {"type": "function", "function": {"name": "clock"}}),
    ],
)
def test_tools_that_may_be_called(choice: str | None, sent: Any) -> None:
    request = TextCompletionRequest(
        prompt="p", tools=(CLOCK, WEATHER), tool_choice=choice, allowed_tools=("clock",), parallel_tool_calls=False
    )
    read = body(request)
    if isinstance(sent, dict) and "allowed_tools" in sent:
        sent["allowed_tools"]["tools"] = [{"type": "function", "function": {"name": "clock"}}]
    assert read["tool_choice"] == sent
    assert read["parallel_tool_calls"] is False
    assert [tool["function"].get("strict") for tool in read["tools"]] == [None, True]


def test_the_role_developer_where_the_server_has_it() -> None:
    turns = (Message("system", "a"), Message("developer", "b"), QUESTION, Message("developer", "c"))
    request = TextCompletionRequest("s", messages=turns)
    assert [(it["role"], it["content"]) for it in body(request, developer=True)["messages"]] == [
        ("system", "s\n\na"),
        ("developer", "b\n\nc"),
        ("user", "x"),
    ]
    assert body(request)["messages"][0] == {"role": "system", "content": "s\n\na\n\nb\n\nc"}


def test_hints_and_openais_own_fields_and_parts() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}}
    request = TextCompletionRequest(
        messages=(Message("user", (TextPart("hear"), ForeignPart("openai", audio))),),
        user="u",
        cache_key="k",
        priority=3,
        foreign=Foreign("openai", {"verbosity": "low", "model": "another"}),
    )
    sent = sent_by(OpenAiOptions(hint_fields={"user": "safety_identifier", "cache_key": "prompt_cache_key"}), request)
    assert (sent["safety_identifier"], sent["prompt_cache_key"], sent["verbosity"]) == ("u", "k", "low")
    assert (sent["model"], "priority" in sent) == ("m", False)
    assert sent["messages"][0]["content"] == [{"type": "text", "text": "hear"}, audio]
    plain = sent_by(OpenAiOptions(), msgspec.structs.replace(request, foreign=Foreign("anthropic", {"x": 1})))
    assert not {"user", "cache_key", "x"} & set(plain)


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        (None, None),
        ("reasoning_content", "hm"),
        ("reasoning", "e"),
        ("reasoning_details", [{"type": "reasoning.text", "text": "d"}]),
        ("extra_content", None),
    ],
)
def test_a_server_gets_the_thinking_that_it_told_and_no_other(field: ThinkingField | None, sent: Any) -> None:
    parts = (
        ReasoningPart("h", "reasoning_content:"),
        ReasoningPart("m", "reasoning_content:"),
        ReasoningPart("e", "reasoning:"),
        ReasoningPart("other", "anthropic:SIG"),
        ReasoningPart("unsigned"),
        ReasoningPart("d", 'reasoning_details:[{"type":"reasoning.text","text":"d"}]'),
        TextPart("so"),
    )
    signed = ToolCall("c1", "clock", "{}", "gemini:SIG")
    turn = Message("assistant", parts, tool_calls=(signed, ToolCall("c2", "clock", "{}", "anthropic:SIG")))
    (_, told) = body(TextCompletionRequest(messages=(QUESTION, turn)), thinking_field=field)["messages"]
    first, second = told.pop("tool_calls")
    extra = {"google": {"thought_signature": "SIG"}} if field == "extra_content" else None
    assert (first.get("extra_content"), second.get("extra_content")) == (extra, None)
    assert first["type"] == "function"
    thinking: dict[str | None, Any] = {field: sent} if sent else {}
    assert told == {"role": "assistant", "content": "so", **thinking}


@pytest.mark.parametrize("value", ["", "{}", "[", "\ud800"])
def test_a_changed_signature_is_refused(value: str) -> None:
    turn = Message("assistant", (ReasoningPart("d", f"reasoning_details:{value}"), TextPart("so")))
    with pytest.raises(BadRequest, match="as it came"):
        body(TextCompletionRequest(messages=(QUESTION, turn)), thinking_field="reasoning_details")


def thought(text: str, **item: Any) -> bytes:
    details = [{"type": "reasoning.text", "text": text, "index": 0, **item}]
    return event("m", {"content": "", "reasoning": text, "reasoning_details": details})


def test_items_of_thinking_are_merged_into_one_signature() -> None:
    encrypted = {"type": "reasoning.encrypted", "data": "E", "index": 1}
    read = chunks(
        thought("h"),
        thought("m"),
        thought("", signature="SIG"),
        event("m", {"reasoning_details": [encrypted]}),
        event("m", {"content": "so"}),
        finish_event("m", "stop"),
        thinking_field="reasoning_details",
    )
    assert [(chunk.reasoning, chunk.text) for chunk in read] == [("h", ""), ("m", ""), (None, "so"), (None, "")]
    (signature,) = [chunk.signature for chunk in read if chunk.signature]
    assert msgspec.json.decode(signature.removeprefix("reasoning_details:")) == [
        {"type": "reasoning.text", "text": "hm", "index": 0, "signature": "SIG"},
        encrypted,
    ]


@pytest.mark.parametrize("last", [event("m", {"content": "so"}), finish_event("m", "stop")])
def test_thinking_ends_with_what_follows_it(last: bytes) -> None:
    events = (event("m", {"reasoning_content": "h"}), event("m", {"reasoning_content": "m"}), last)
    told = [chunk.signature for chunk in chunks(*events, thinking_field="reasoning_content")]
    assert told == [None, None, "reasoning_content:"]
    assert not any(chunk.signature for chunk in chunks(*events))


def test_a_call_of_gemini_keeps_its_signature() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "clock", "arguments": "{}"}}
    (read,) = chunks(event("m", {"tool_calls": [{**call, "extra_content": {"google": {"thought_signature": "SIG"}}}]}))
    assert read.tool_calls == (ToolCallDelta(0, "c", "clock", "{}", "gemini:SIG"),)


def test_several_answers_alternate() -> None:
    def of(index: int, delta: dict[str, Any], reason: str | None = None) -> bytes:
        return event("m", delta, reason, index=index)

    call = {"index": 0, "id": "c", "function": {"name": "clock", "arguments": "{}"}}
    read = chunks(
        of(0, {"content": "a"}),
        of(1, {"content": "b"}),
        of(1, {"tool_calls": [call]}),
        of(0, {}, "stop"),
        of(1, {}, "stop"),
    )
    assert [(chunk.index, chunk.text, chunk.finish_reason) for chunk in read] == [
        (0, "a", None),
        (1, "b", None),
        (1, "", None),
        (0, "", "stop"),
        (1, "", "tool_calls"),
    ]


def test_alternatives_have_their_texts_and_a_token_its_bytes() -> None:
    top = [{"token": "€", "logprob": -0.5, "bytes": [226]}, {"token": "x", "logprob": -2.0, "bytes": None}]
    logprobs = {"content": [{"token": "\ufffd", "logprob": -0.5, "bytes": [226, 130], "top_logprobs": top}]}
    (read,) = chunks(event("m", {"content": ""}, logprobs=logprobs))
    assert read.tokens == (
        Token(-1, "\ufffd", -0.5, ((-1, -0.5), (-1, -2.0)), top_texts=("€", "x"), raw_bytes=b"\xe2\x82"),
    )


def test_tokens_written_into_the_cache() -> None:
    (read,) = chunks(usage_event("m", 10, 3, cached=4, reasoning=0, written=5))
    assert (read.in_token, read.cached_token, read.cache_write_token) == (10, 4, 5)


def test_only_a_provider_that_has_reasoning_models_speaks_of_them() -> None:
    for code, advised in (
        ("unsupported_value", True),
        ("unsupported_parameter", True),
        ("invalid_request_error", False),
    ):
        body = json.dumps({"error": {"code": code, "message": "no"}}).encode()
        for provider in (OpenAi, AzureOpenAi, OpenAiCompatible, Vllm):
            detail = provider.wire.error_detail(body)
            told = str(status_error(400, detail.code, None, detail.advice))
            assert ("max_completion_tokens" in told) == (advised and provider in {OpenAi, AzureOpenAi}), told
            assert ("one of the sampling fields" in told) == advised
