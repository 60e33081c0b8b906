"""TGI's door over HTTP: statuses, headers and shapes of answers and refusals, tokens of texts, and the demo model."""

import asyncio
import hashlib
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
from tests.llama.demo_llm import opened
from tg_base.config import ApiKey, GatewayConfig
from tg_doors.tgi.dialect import TextGenerationInference
from tg_gateway.dialects import Ask, Call, Mount
from tg_schema import COMMON_FEATURES
from tg_schema.errors import TgError, Timeout, TooLarge

KEY = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest())
LOCKED = GatewayConfig(port=0, drain=0.05, keys=(KEY,))
SMALL = GatewayConfig(port=0, drain=0.05, body_limit=100, large_body_limit=100)
HELLO = {"inputs": "say hello"}
DEMO = "tinydemo"
BEGUN = "Once upon a time there was"


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


async def test_keys_and_sizes() -> None:
    async with open_gateway(LOCKED) as it:
        for path in ("/generate", "/generate_stream", "/"):
            status, answer = await post(it, path, {**HELLO, "stream": True})
            assert (status, answer["error_type"]) == (401, "unauthorized")
        async with it.http.get("/info") as refused:
            assert refused.status == 401
        async with it.http.get("/") as response:
            assert response.status in {200, 503}
    async with open_gateway(SMALL) as it:
        assert (await post(it, "/generate_stream", {"inputs": "x" * 200}))[0] == 413


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


async def test_a_failure_in_mid_stream_is_the_last_event() -> None:
    async with door() as it:
        status, events = await post(it, "/generate_stream", {"inputs": "cut"})
        assert status == 200
        assert events[-1] == {"error": "the provider's stream was cut", "error_type": "incomplete_generation"}
        assert [event["token"]["text"] for event in events[:-1]] == ["Hel"]


@asynccontextmanager
async def demo() -> AsyncIterator[Opened]:
    async with opened() as service, open_gateway(llm=CountingLlm(DEMO), instead=service) as it:
        await until_listed(it.http)
        yield it


@pytest.mark.model
async def test_the_tokens_of_the_demo_model() -> None:
    async with demo() as it:
        _, tokens = await post(it, "/tokenize", {"inputs": f"{BEGUN} €"})
        assert "".join(token["text"] for token in tokens[:7]) == BEGUN
        assert [token["stop"] for token in tokens][-1] == len(f"{BEGUN} €".encode())
        asked = {"max_new_tokens": 2, "decoder_input_details": True}
        _, answer = await post(it, "/generate", {"inputs": BEGUN, "parameters": asked})
        prefill = answer["details"]["prefill"]
        assert [token["id"] for token in prefill] == [token["id"] for token in tokens[:7]]
        assert [token["logprob"] is None for token in prefill] == [True] + [False] * 6

        _, chat = await post(it, "/chat_tokenize", {"model": "tgi", "messages": [{"role": "user", "content": "Hi"}]})
        text = chat["templated_text"]
        assert "Hi" in text
        assert "".join(token["text"] for token in chat["tokenize_response"]) == text
        _, events = await post(it, "/generate_stream", {"inputs": text, "parameters": {"details": True}})
        last = events[-1]
        assert last["details"]["finish_reason"] == "eos_token"
        assert (last["token"]["special"], last["token"]["text"]) == (True, "<|im_end|>")
        assert last["details"]["input_length"] == len(chat["tokenize_response"])


@pytest.mark.model
async def test_the_demo_model() -> None:
    async with demo() as it:
        parameters = {"max_new_tokens": 16, "details": True}
        story: dict[str, Any] = {"inputs": BEGUN, "parameters": parameters}
        _, whole = await post(it, "/generate", story)
        text, details = whole["generated_text"], whole["details"]
        assert (details["finish_reason"], details["generated_tokens"], len(details["tokens"])) == ("length", 16, 16)
        assert "".join(token["text"] for token in details["tokens"]) == text
        _, events = await post(it, "/generate_stream", story)
        for event, token in zip(events, details["tokens"], strict=False):
            logprob = pytest.approx(token["logprob"], abs=0.01)
            assert event["token"] == {**token, "logprob": logprob}
        last = events[-1]
        assert (last["generated_text"], last["details"]["generated_tokens"]) == (text, 16)
        native = {"prompt": BEGUN, "raw": True, "sampling": {"temperature": 0, "max_tokens": 16}}
        _, same = await post(it, "/api/v1/text-completion", native)
        assert same["response"] == text
        assert last["details"]["input_length"] == same["in_token"]

        async with it.http.get("/info") as response:
            info = await response.json()
        assert (info["max_input_tokens"], info["max_total_tokens"]) == (4095, 4096)

        long = {"inputs": "word " * 9000 + BEGUN, "parameters": {**parameters, "truncate": 5}}
        _, cut = await post(it, "/generate_stream", long)
        assert cut[-1]["details"]["input_length"] == 5

        stop = text[8:14]
        asked = {**story, "parameters": {**parameters, "stop": [stop, "never"]}}
        _, stopped = await post(it, "/generate", asked)
        assert stopped["generated_text"] == text.partition(stop)[0] + stop
        assert stopped["details"]["finish_reason"] == "stop_sequence"

        sampled = {"temperature": 0.9, "seed": 7, "max_new_tokens": 8, "details": True}
        answers = await asyncio.gather(*[post(it, "/generate", {**story, "parameters": sampled}) for _ in range(2)])
        assert answers[0] == answers[1]
        assert answers[0][1]["details"]["seed"] == 7

        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        form = {**schema, "additionalProperties": False}
        asked = {"inputs": "n is 5", "parameters": {"grammar": {"type": "json", "value": form}}}
        _, answer = await post(it, "/generate", asked)
        assert list(json.loads(answer["generated_text"])) == ["n"]

        _, best = await post(
            it, "/generate", {**story, "parameters": {"best_of": 3, "temperature": 1, "details": True}}
        )
        assert len(best["details"]["best_of_sequences"]) == 2
