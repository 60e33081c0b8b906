"""Bedrock, Cohere, Mistral, Ollama and text-generation-inference beyond the matrix: what their own wires say."""

import asyncio
import json
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from copy import copy
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.fakes.bedrock_server import BedrockServer
from tests.fakes.cohere_server import CohereServer
from tests.fakes.cohere_server import event as cohere_event
from tests.fakes.loopback_server import LoopbackServer
from tests.fakes.mistral_server import MistralServer
from tests.fakes.mistral_server import event as mistral_event
from tests.fakes.ollama_server import OllamaServer, line
from tests.fakes.plan import Fault, Plan
from tests.fakes.silent_server import SilentServer
from tests.fakes.tgi_server import TgiServer
from tests.provider_matrix.asking import REQUEST, WEATHER, joined, responses
from tests.provider_matrix.case import Case, Stage, staged
from tests.provider_matrix.families import bedrock, cohere, mistral, ollama, tgi
from tests.within import within
from tg_schema import (
    ImagePart,
    Message,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    TextPart,
    TgError,
    Tool,
)
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import (
    BadRequest,
    ContentFilter,
    IncompleteStream,
    ProtocolError,
    RateLimited,
    Timeout,
    TooLarge,
    Unavailable,
)
from tg_schema.text_completion import Reasoning

CASES = {case.provider: case for family in (bedrock, cohere, mistral, ollama, tgi) for case in family.CASES}
SERVERS: dict[str, type[LoopbackServer]] = {
    "bedrock": BedrockServer,
    "cohere": CohereServer,
    "mistral": MistralServer,
    "ollama": OllamaServer,
    "tgi": TgiServer,
}


def saying(server: type[LoopbackServer], raw: bytes) -> Callable[[], AbstractAsyncContextManager[LoopbackServer]]:
    """That server, with `raw` in place of an error in its stream."""
    saying: type[LoopbackServer] = type("Saying", (server,), {"error": lambda self, plan: raw})
    return saying.running


def changed(provider: str, raw: bytes) -> Case:
    case = CASES[provider]
    return Case(case.provider, saying(SERVERS[provider], raw), case.options, case.environment)


def sse(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


FAULTS: list[tuple[str, bytes, type[TgError]]] = [
    ("cohere", cohere_event("message-end", {"finish_reason": "ERROR", "error": "secret"}), Unavailable),
    ("cohere", cohere_event("message-end", {"finish_reason": "ERROR_TOXIC"}), ContentFilter),
    ("cohere", cohere_event("message-end", {"finish_reason": "TIMEOUT"}), Timeout),
    ("cohere", cohere_event("message-end", {}), Unavailable),
    ("cohere", b"event: content-delta\ndata: {nonsense\n\n", ProtocolError),
    ("cohere", sse({"type": "content-delta", "delta": {"message": {"content": 7}}}), ProtocolError),
    ("cohere", b"data: " + b"[" * 100_000 + b"\n\n", ProtocolError),
    ("cohere", b"data: [DONE]\n\n", ProtocolError),
    ("mistral", sse({"object": "error", "message": "secret", "type": "rate_limited", "code": "1300"}), RateLimited),
    ("mistral", sse({"object": "error", "message": "secret", "type": "internal_server_error"}), Unavailable),
    ("mistral", sse({"error": {"message": "secret", "type": "invalid_request_error"}}), BadRequest),
    ("mistral", mistral_event("m", {"content": ""}, "error"), Unavailable),
    ("mistral", sse({"choices": 7}), ProtocolError),
    ("mistral", sse({"hello": "world"}), ProtocolError),
    ("mistral", b"data: [DONE]\n\n", IncompleteStream),
    ("ollama", b'{"error":"secret"}\n', Unavailable),
    ("ollama", b'{"error":{"message":"secret"}}\n', Unavailable),
    ("ollama", b"{nonsense\n", ProtocolError),
    ("ollama", b'{"message":{"content":"\xff"}}\n', ProtocolError),
    ("ollama", b"[" * 100_000 + b"\n", ProtocolError),
    ("ollama", line("m", {"role": "assistant", "content": "lo"})[:-1], IncompleteStream),
    ("tgi", sse({"error": {"message": "Input validation error: secret", "http_status_code": 422}}), BadRequest),
    ("tgi", sse({"error": {"message": "Model is overloaded", "http_status_code": 422}}), RateLimited),
    ("tgi", sse({"error": "secret", "error_type": "generation"}), Unavailable),
]


@pytest.mark.parametrize(("provider", "raw", "kind"), FAULTS)
async def test_what_goes_wrong_in_a_stream_is_one_typed_error_after_the_text(
    provider: str, raw: bytes, kind: type[TgError]
) -> None:
    async with staged(changed(provider, raw)) as stage, stage.opened() as service:
        stage.wire.play(Plan(fault=Fault.ERROR, after=1))
        received: list[TextCompletionResponse] = []
        with pytest.raises(TgError) as caught:
            await responses(service, into=received)
    assert type(caught.value) is kind
    assert "".join(record.response or "" for record in received) == "Hel"
    assert "secret" not in caught.value.message


STATUSES: list[tuple[web.Response, type[TgError]]] = [
    (web.Response(status=502, content_type="text/html", text="<html>secret</html>"), Unavailable),
    (web.Response(status=413, text="secret"), TooLarge),
    (web.Response(status=307, headers={"Location": "http://127.0.0.1:9/"}), ProtocolError),
    (web.Response(status=400, body=b"[" * 600), BadRequest),
    (web.Response(status=200, content_type="text/html", text="<html>secret</html>"), ProtocolError),
]


@pytest.mark.parametrize("provider", CASES)
@pytest.mark.parametrize("number", range(len(STATUSES)))
async def test_what_is_no_answer_of_the_provider_is_one_typed_error(provider: str, number: int) -> None:
    answer, kind = STATUSES[number]
    case = CASES[provider]
    server: type[LoopbackServer] = type("Foreign", (SERVERS[provider],), {"refusal": lambda self, plan: copy(answer)})
    async with staged(replace(case, wire=server.running)) as stage, stage.opened() as service:
        stage.wire.play(Plan(fault=Fault.REFUSE))
        with pytest.raises(TgError) as caught:
            await responses(service)
    assert type(caught.value) is kind
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("provider", CASES)
async def test_a_cancel_before_any_answer_closes_the_socket(provider: str) -> None:
    case = CASES[provider]
    silent = Case(case.provider, SilentServer.running, case.options, case.environment)
    async with staged(silent) as stage, stage.opened() as service:
        server = stage.wire
        assert isinstance(server, SilentServer)
        task = asyncio.create_task(responses(service))
        await asyncio.wait_for(server.asked.wait(), 10)
        task.cancel()
        await within(1, server.left.wait())
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("provider", CASES)
async def test_nobody_listens(provider: str, unused_tcp_port: int) -> None:
    async with staged(CASES[provider]) as stage:
        url = f"http://127.0.0.1:{unused_tcp_port}"
        option = "endpoint_url" if provider == "bedrock" else "base_url"
        async with stage.opened(**{option: f"{url}/v1" if provider == "tgi" else url}) as service:
            with pytest.raises(Unavailable, match="cannot be reached"):
                await responses(service)
            with pytest.raises(Unavailable, match="cannot be reached"):
                await service.models()


async def test_ollama_reads_no_file_that_an_image_names() -> None:
    async with staged(CASES["ollama"]) as stage, stage.opened() as service:
        picture = Message("user", (ImagePart(data=__file__),))
        with pytest.raises(BadRequest):
            await responses(service, TextCompletionRequest(messages=(picture,), streaming=True))
        assert stage.wire.exchanges[0].asked is None


@pytest.mark.parametrize("choice", ["required", "weather"])
async def test_ollama_is_not_asked_for_what_it_would_ignore(choice: str) -> None:
    async with staged(CASES["ollama"]) as stage, stage.opened() as service:
        with pytest.raises(BadRequest, match="tool_choice"):
            await responses(service, TextCompletionRequest(prompt="p", tool_choice=choice, streaming=True))
        assert stage.wire.exchanges == []


async def test_logprobs_of_ollama() -> None:
    said = [{"token": "Hel", "logprob": -0.5, "bytes": [72], "top_logprobs": [{"token": "Hel", "logprob": -0.5}]}]
    last = line("m", {"role": "assistant", "content": "Hel"}, logprobs=said)
    async with staged(changed("ollama", last + line("m", {"content": ""}, done=True, done_reason="stop"))) as stage:
        stage.wire.play(Plan(fault=Fault.ERROR))
        async with stage.opened() as service:
            answer = joined(await responses(service))
    assert [(token.text, token.logprob, token.top) for token in answer.tokens] == [("Hel", -0.5, ((-1, -0.5),))]


async def test_the_configurations_options_reach_the_wire() -> None:
    told: list[tuple[str, dict[str, Any]]] = [
        ("cohere", {"thinking": 500, "temperature": 0.25, "max_tokens": 5}),
        ("mistral", {"prompt_mode": "reasoning", "reasoning_effort": "high", "temperature": 0.25, "max_tokens": 5}),
        ("ollama", {"think": "low", "num_ctx": 8192, "keep_alive": "1m", "temperature": 0.25, "max_tokens": 5}),
    ]
    for provider, options in told:
        async with staged(CASES[provider]) as stage:
            async with stage.opened(**options) as service:
                await responses(service)
            assert (sampling := _sampling(stage)).temperature == 0.25
            assert sampling.max_tokens == 5


async def test_what_only_mistral_takes_beside_openais_fields() -> None:
    async with staged(CASES["mistral"]) as stage:
        turns = (Message("user", "x"), Message("assistant", (ReasoningPart("hm", "anthropic:SIG"), TextPart("y"))))
        request = TextCompletionRequest(
            messages=turns,
            prompt="p",
            tools=(msgspec.structs.replace(WEATHER, strict=True),),
            parallel_tool_calls=False,
            reasoning=Reasoning(budget=3000),
            cache_key="k",
            sampling=Sampling(min_tokens=2, repetition_penalty=1.5),
        )
        async with stage.opened(reasoning_effort="none") as service:
            body = msgspec.json.decode(service.body(request))  # type: ignore[attr-defined]
            await responses(service, request)
    assert (body["reasoning_effort"], body["prompt_cache_key"], body["parallel_tool_calls"]) == ("low", "k", False)
    assert (body["min_tokens"], body["repetition_penalty"]) == (2, 1.5)
    assert body["messages"][1]["content"] == "y"


@pytest.mark.parametrize(
    ("provider", "options", "reasoning", "field", "sent"),
    [
        ("cohere", {}, Reasoning("low"), "thinking", {"type": "enabled", "token_budget": 2048}),
        ("cohere", {"thinking": 5}, Reasoning(budget=700), "thinking", {"type": "enabled", "token_budget": 700}),
        ("cohere", {"thinking": True}, Reasoning("none"), "thinking", {"type": "disabled"}),
        ("ollama", {}, Reasoning("low"), "think", True),
        ("ollama", {"think": True}, Reasoning(budget=0), "think", False),
        ("ollama", {"effort_by": "level"}, Reasoning("minimal"), "think", "low"),
        ("ollama", {"effort_by": "level"}, Reasoning("max"), "think", "high"),
        ("ollama", {"effort_by": "level"}, Reasoning("none"), "think", False),
    ],
)
async def test_reasoning_of_a_request_goes_before_the_configurations(
    provider: str, options: dict[str, Any], reasoning: Reasoning, field: str, sent: object
) -> None:
    request = TextCompletionRequest(prompt="p", reasoning=reasoning)
    async with staged(CASES[provider]) as stage, stage.opened(**options) as service:
        assert joined(await responses(service, request)).response == "Hello €!"
        assert msgspec.json.decode(service.body(request))[field] == sent  # type: ignore[attr-defined]


async def test_sampling_that_ollama_and_cohere_have_beside_the_common() -> None:
    async with staged(CASES["ollama"]) as stage, stage.opened() as service:
        own = TextCompletionRequest(prompt="p", sampling=Sampling(min_p=0.1, typical_p=0.5, repetition_penalty=1.5))
        assert joined(await responses(service, own)).response == "Hello €!"
        told = msgspec.json.decode(service.body(own))["options"]  # type: ignore[attr-defined]
        assert told == {"min_p": 0.1, "typical_p": 0.5, "repeat_penalty": 1.5}
    async with staged(CASES["cohere"]) as stage, stage.opened() as service:
        strict = TextCompletionRequest(prompt="p", tools=(Tool("clock", strict=True),), priority=3)
        assert joined(await responses(service, strict)).response == "Hello €!"
        body = msgspec.json.decode(service.body(strict))  # type: ignore[attr-defined]
        assert (body["strict_tools"], body["priority"]) == (True, 3)


def _sampling(stage: Stage) -> Any:
    asked = stage.wire.exchanges[0].asked
    assert asked is not None
    return asked.sampling


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}], [("a", "f", '{"x":1}')]),
        (
            [
                {"id": "a", "index": 0, "function": {"name": "f", "arguments": '{"x"'}},
                {"id": "null", "index": 0, "function": {"name": "", "arguments": ":1}"}},
            ],
            [("a", "f", '{"x":1}')],
        ),
    ],
)
async def test_calls_of_mistral_in_all_their_forms(
    deltas: Iterable[dict[str, Any]], expected: list[tuple[str, str, str]]
) -> None:
    raw = b"".join(mistral_event("m", {"tool_calls": [delta]}) for delta in deltas)
    async with staged(changed("mistral", raw + mistral_event("m", {}, "tool_calls"))) as stage:
        stage.wire.play(Plan(fault=Fault.ERROR))
        async with stage.opened() as service:
            answer = joined(await responses(service, REQUEST))
    assert [(call.id, call.name, call.arguments) for call in answer.tool_calls] == expected
    assert answer.finish_reason == "tool_calls"
