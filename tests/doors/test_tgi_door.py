"""TGI's door over HTTP: statuses, headers and shapes of answers and refusals, and tokens of texts."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.raw_llm import ERRORS, FEATURES, RawLlm
from tests.flow.open_gateway import MOUNTS, Opened, open_gateway, until_listed
from tg_doors.tgi.dialect import TextGenerationInference
from tg_gateway.dialects import Ask, Call, Mount
from tg_schema import COMMON_FEATURES
from tg_schema.errors import TgError, Timeout, TooLarge

HELLO = {"inputs": "say hello"}


@asynccontextmanager
async def door(llm: RawLlm | None = None, **options: Any) -> AsyncIterator[Opened]:
    """A gateway that knows who serves."""
    async with open_gateway(instead=llm or RawLlm(), **options) as it:
        await until_listed(it.http)
        yield it


async def post(it: Opened, path: str, body: object) -> tuple[int, Any]:
    """Status, and the JSON of the body or of all events."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with it.http.post(path, data=data) as response:
        content = await response.read()
        if response.content_type == "text/event-stream":
            *events, rest = content.split(b"\n\n")
            assert rest == b""
            return response.status, [json.loads(event[6:]) for event in events]
        return response.status, json.loads(content)


async def test_each_path() -> None:
    async with door() as it:
        assert await post(it, "/", HELLO) == (200, [{"generated_text": "Hello €"}])
        assert await post(it, "/generate", HELLO) == (200, {"generated_text": "Hello €"})
        streams = [
            await post(it, "/generate_stream", HELLO),
            await post(it, "/", {**HELLO, "stream": True}),
        ]
        for status, events in streams:
            assert (status, len(events), events[-1]["generated_text"]) == (200, 6, "Hello €")
        async with it.http.get("/") as response:
            assert (response.status, await response.read()) == (200, b"")
        async with it.http.head("/") as response:
            assert "request-id" in response.headers, "Claude Code's probe is still Anthropic's"
        async with it.http.get("/info") as response:
            info = await response.json()
            assert (info["model_id"], info["max_total_tokens"]) == ("counting", None)
        async with it.http.get("/health") as response:
            assert response.status == 200


async def test_the_headers() -> None:
    async with door() as it:
        async with it.http.post("/generate", json={**HELLO, "parameters": {"watermark": True}}) as response:
            whole = response.headers
        async with it.http.post("/generate_stream", json=HELLO) as response:
            stream = response.headers
        for headers in (whole, stream):
            assert (headers["x-compute-type"], headers["x-compute-characters"]) == ("unknown", "9")
        assert (whole["x-prompt-tokens"], whole["x-generated-tokens"]) == ("2", "5")
        assert whole["X-Tokengrid-Ignored"] == "parameters.watermark"
        assert int(whole["x-total-time"]) >= int(whole["x-inference-time"]) + int(whole["x-queue-time"]) >= 0
        assert stream["X-Accel-Buffering"] == "no"
        assert stream["Content-Type"] == "text/event-stream; charset=utf-8"


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/generate", b"", 422, "validation"),
        ("/generate_stream", b"", 200, "validation"),
        ("/generate", b"{", 422, "validation"),
        ("/generate", b"[]", 422, "validation"),
        ("/generate", b"\xff", 422, "validation"),
        ("/generate", {}, 422, "validation"),
        ("/generate", {"inputs": ""}, 422, "validation"),
        ("/generate", {"inputs": ["a"]}, 422, "validation"),
        ("/generate", {"inputs": "a", "parameters": {"top_p": 2}}, 422, "validation"),
        ("/generate", {"inputs": "a", "parameters": {"truncate": 0}}, 422, "validation"),
        ("/generate", {"inputs": "a", "parameters": {"top_k": 2**40}}, 422, "validation"),
        ("/generate", {"inputs": "a", "model": "nobody"}, 404, "not_found"),
        ("/generate", {"inputs": "busy"}, 429, "overloaded"),
        ("/generate", {"inputs": "down"}, 424, "generation"),
        ("/generate", {"inputs": "cut"}, 500, "incomplete_generation"),
        ("/", {"inputs": "a", "parameters": []}, 422, "validation"),
        ("/", {"inputs": "a", "stream": 1}, 422, "validation"),
        ("/", {"inputs": "a", "stream": True, "parameters": {"best_of": 2, "do_sample": True}}, 200, "validation"),
        ("/", {"inputs": "down", "stream": True}, 200, "generation"),
        ("/generate_stream", b"{", 200, "validation"),
        ("/generate_stream", {"inputs": ""}, 200, "validation"),
        ("/generate_stream", {"inputs": "a", "model": "nobody"}, 200, "not_found"),
        ("/generate_stream", {"inputs": "busy"}, 200, "overloaded"),
        ("/tokenize", {"inputs": 5}, 422, "validation"),
        ("/chat_tokenize", {"messages": []}, 422, "validation"),
        ("/generate/nothing", HELLO, 404, "not_found"),
        ("/info", HELLO, 405, "validation"),
    ],
)
async def test_what_is_refused(path: str, body: object, status: int, kind: str) -> None:
    async with door() as it:
        got, answer = await post(it, path, body)
        (error,) = answer if isinstance(answer, list) else [answer]
        assert (got, list(error), error["error_type"]) == (status, ["error", "error_type"], kind)
        assert len(error["error"]) > 8
        assert (await post(it, "/", HELLO))[0] == 200


async def test_a_processor_at_work_is_noticed_over_http() -> None:
    begun, llm = asyncio.Event(), CountingLlm()
    llm.step = asyncio.Semaphore(0)

    class Noting(TextGenerationInference):
        @override
        def parse(self, call: Call) -> Any:
            asked = super().parse(call)
            assert isinstance(asked, Ask)
            assert asked.on_accepted is not None
            return replace(asked, on_accepted=begun.set)

    async with open_gateway(llm=llm, mounts=(Mount("POST", "/noting", Noting(), "generate"), *MOUNTS)) as it:
        await until_listed(it.http)
        asked = asyncio.create_task(post(it, "/noting", {"inputs": "1"}))
        await asyncio.wait_for(begun.wait(), 30)
        llm.step.release()
        assert (await asked)[0] == 200


async def test_what_a_model_lacks_is_refused_before_it_is_queued() -> None:
    llm = RawLlm(features=COMMON_FEATURES - {"logprobs"})
    async with door(llm) as it:
        for parameters, named in (
            ({"typical_p": 0.5}, "typical_p"),
            ({"top_n_tokens": 2}, "logprobs (parameters.top_n_tokens)"),
            ({"decoder_input_details": True}, "prompt_logprobs (parameters.decoder_input_details)"),
            ({"grammar": {"type": "regex", "value": "a"}}, "regex (parameters.grammar.value)"),
            ({"adapter_id": "x"}, "adapter (parameters.adapter_id)"),
        ):
            status, answer = await post(it, "/generate", {**HELLO, "parameters": parameters})
            assert (status, answer["error_type"]) == (422, "validation")
            assert f"the model can't do this: {named};" in answer["error"]
        assert llm.requests == []
        # A model behind a chat API has neither raw text nor tokens.
        status, events = await post(it, "/generate_stream", {**HELLO, "parameters": {"details": True}})
        assert {event["token"]["id"] for event in events} == {-1}
        assert "".join(event["token"]["text"] for event in events) == events[-1]["generated_text"] == "Hello €"
        assert llm.requests[0].raw is False


async def test_the_tokens_of_texts() -> None:
    async with door() as it:
        status, tokens = await post(it, "/tokenize", HELLO)
        assert (status, tokens) == (
            200,
            [
                {"id": 1, "text": "", "start": 0, "stop": 0},
                {"id": 30, "text": "say", "start": 0, "stop": 3},
                {"id": 31, "text": " hello", "start": 3, "stop": 9},
            ],
        )
        body = {"model": "tgi", "messages": [{"role": "user", "content": "say hello"}]}
        status, chat = await post(it, "/chat_tokenize", body)
        assert (status, chat["templated_text"]) == (200, "<s><user>say hello")
        assert [token["text"] for token in chat["tokenize_response"]] == ["<s>", "<user>say", " hello"]
    async with door(RawLlm(features=FEATURES - {"token_texts"})) as it:
        status, refused = await post(it, "/tokenize", HELLO)
        assert (status, refused["error_type"]) == (422, "validation")
        assert "token_texts" in refused["error"]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [(TooLarge("the prompt is too long"), 422, "validation"), (Timeout("slow"), 424, "generation")],
)
async def test_further_failures_of_a_provider(
    error: TgError, status: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ERRORS, "fail", error)
    async with door() as it:
        got, answer = await post(it, "/generate", {"inputs": "fail"})
        assert (got, answer) == (status, {"error": error.message, "error_type": kind})
