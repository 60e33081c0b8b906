"""Raw prompts at a text-generation-inference server, by its own API, and what each choice of the API announces."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from tests.fakes.plan import Fault, Plan
from tests.fakes.tgi_generate_server import (
    BEGIN,
    FIRST,
    ChatTokenizeBody,
    Grammar,
    Parameters,
    TgiGenerateServer,
    TokenizeBody,
)
from tests.fakes.tgi_server import TgiServer
from tests.flow.known_providers import native_features
from tests.flow.test_vllm import asked, streamed
from tests.within import within
from tg_base.llm import LlmService
from tg_base.llm.large_request import RequestParts
from tg_base.llm.prepared_request import PreparedRequest, prepare_request
from tg_flow.providers import open_provider
from tg_schema import Message, ModelInfo, Sampling, TextCompletionRequest, TextCompletionResponse, TgError, Tool, encode
from tg_schema.errors import (
    BadRequest,
    IncompleteStream,
    NotFound,
    ProtocolError,
    ProviderAuth,
    RateLimited,
    Unavailable,
)


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[LlmService]:
    table = {"base_url": f"{url}/v1", "tries": 1, "api": "generate", **options}
    async with aclosing(await open_provider("tgi", "mine", table)) as service:
        yield service


def text_of(records: list[TextCompletionResponse], index: int = 0) -> str:
    return "".join([record.response or "" for record in records if record.index == index])


async def test_a_raw_prompt_is_generated_with_its_tokens() -> None:
    async with TgiGenerateServer.running() as server, opened(server.url, parameters={"watermark": True}) as service:
        sampling = Sampling(logprobs=2, seed=7, end_token=True)
        (*_, last) = records = await streamed(
            service, raw=True, prompt="aé", sampling=sampling, max_prompt_tokens=5, regex="H.*"
        )
        (body,) = server.bodies
        assert server.exchanges[0].path == "/generate_stream"
        assert await service.models() == (ModelInfo("mine"),)
    tokens = [token for record in records for token in record.tokens]
    assert text_of(records) == "Hello €!"
    assert [(token.text, token.special) for token in tokens] == [
        ("Hel", False),
        ("lo €", False),
        ("!", False),
        ("</s>", True),
    ]
    assert tokens[0].top == ((FIRST + 3, -0.5), (FIRST + 4, -1.5))
    # The server counts its end token too.
    assert (last.finish_reason, last.in_token, last.out_token, last.seed) == ("stop", 11, 6, 7)
    assert (body.inputs, body.parameters) == (
        "aé",
        Parameters(details=True, seed=7, top_n_tokens=2, truncate=5, watermark=True, grammar=Grammar("regex", "H.*")),
    )


async def test_endings_are_told_apart() -> None:
    async with TgiGenerateServer.running() as server, opened(server.url, upstream_model="lora") as service:
        stopped = await streamed(service, raw=True, prompt="a", sampling=Sampling(stop=("END",)))
        server.play(Plan(finish="length"))
        cut = await streamed(service, raw=True, prompt="a")
        adapters = [body.parameters.adapter_id for body in server.bodies]
    assert (text_of(stopped), stopped[-1].finish_reason, stopped[-1].stopped_by) == ("Hello €!", "stop", "END")
    assert (cut[-1].finish_reason, cut[-1].out_token) == ("length", 7)
    assert adapters == ["lora", "lora"]


async def test_several_answers_are_several_requests() -> None:
    async with TgiGenerateServer.running() as server, opened(server.url) as service:
        records = await streamed(service, raw=True, prompt="a", sampling=Sampling(n=2, seed=3))
        asked_for = sorted((body.parameters.seed, body.parameters.best_of) for body in server.bodies)
    assert [text_of(records, index) for index in range(2)] == ["Hello €!", "Hello €!"]
    assert asked_for == [(3, None), (4, None)]


async def test_the_tokens_of_a_prompt_are_told_before_its_answer() -> None:
    async with TgiGenerateServer.running() as server, opened(server.url) as service:
        request: dict[str, Any] = {"raw": True, "prompt": "aé", "sampling": Sampling(prompt_logprobs=0)}
        records = await streamed(service, **request, echo=True)
        scoring, _ = server.bodies
        cut = await streamed(service, **request, max_prompt_tokens=1)
        server.without_prefill = True
        with pytest.raises(ProtocolError, match="cannot be read"):
            await streamed(service, **request)
        with pytest.raises(BadRequest, match="no alternatives"):
            await streamed(service, raw=True, prompt="a", sampling=Sampling(prompt_logprobs=1))
    assert scoring.parameters == Parameters(max_new_tokens=1, details=True, decoder_input_details=True)
    assert [(token.id, token.logprob) for token in records[0].prompt_tokens] == [
        (BEGIN, None),
        (FIRST + ord("a"), -0.5),
        (FIRST + ord("é"), -0.5),
    ]
    assert text_of(records) == "aéHello €!"
    assert [(token.id, token.logprob) for token in cut[0].prompt_tokens] == [(FIRST + ord("é"), None)]


async def test_tokens_are_counted() -> None:
    turns = (Message("user", "aé"),)
    async with TgiGenerateServer.running() as server, opened(server.url, api="both") as service:
        assert (await asked(service, "tokenize", texts=("a", "é"))).ids == (FIRST + ord("a"), FIRST + ord("é"))
        assert (await asked(service, "count-tokens", raw=True, prompt="aé")).in_token == 3
        assert (await asked(service, "count-tokens", messages=turns, tools=(Tool("f"),))).in_token == 3
        *_, raw, chat = server.bodies
    assert raw == TokenizeBody("aé")
    assert isinstance(chat, ChatTokenizeBody)
    assert (chat.messages, chat.tools[0]["function"]["name"]) == (({"role": "user", "content": "aé"},), "f")


async def test_a_large_prompt_is_written_elsewhere_and_answered_alike() -> None:
    asked_for: dict[str, Any] = {"raw": True, "prompt": "a", "streaming": True}
    async with TgiGenerateServer.running() as server, opened(server.url) as service:
        body = encode(TextCompletionRequest(**asked_for))
        request = prepare_request(type(service), service.model, service.options, body)
        assert isinstance(request, PreparedRequest)
        assert text_of([record async for record in service.on_request(request)]) == "Hello €!"
        assert server.bodies[0].inputs == "a"
        others: list[dict[str, Any]] = [{"echo": True}, {"sampling": Sampling(prompt_logprobs=0)}]
        for more in others:
            body = encode(TextCompletionRequest(**asked_for, **more))
            assert isinstance(prepare_request(type(service), service.model, service.options, body), RequestParts)


FAULTS: list[tuple[Plan, type[TgError], str]] = [
    (Plan(fault=Fault.REFUSE, error=BadRequest), BadRequest, ""),
    (Plan(fault=Fault.REFUSE, error=RateLimited), RateLimited, ""),
    (Plan(fault=Fault.REFUSE, error=NotFound), NotFound, ""),
    (Plan(fault=Fault.REFUSE, error=ProviderAuth), ProviderAuth, ""),
    (Plan(fault=Fault.ERROR, after=1), Unavailable, "Hel"),
    (Plan(fault=Fault.GARBAGE, after=1), ProtocolError, "Hel"),
    (Plan(fault=Fault.END, after=2), IncompleteStream, "Hello €"),
    (Plan(fault=Fault.ABORT, after=2), IncompleteStream, "Hello €"),
]


async def test_what_goes_wrong_is_one_typed_error() -> None:
    async with TgiGenerateServer.running() as server, opened(server.url) as service:
        for plan, kind, text in FAULTS:
            server.play(plan)
            received: list[TextCompletionResponse] = []
            with pytest.raises(TgError) as caught:
                await streamed(service, into=received, raw=True, prompt="a")
            assert (type(caught.value), text_of(received)) == (kind, text), plan
        server.play(Plan(cut=1))
        assert text_of(await streamed(service, raw=True, prompt="a")) == "Hello €!"
        with pytest.raises(BadRequest):
            await streamed(service, raw=True, prompt="a", sampling=Sampling(stop=tuple("abcde")))


async def test_a_cancel_closes_the_socket() -> None:
    async with TgiGenerateServer.running() as server, opened(server.url) as service:
        server.play(Plan(fault=Fault.KEEP_ALIVE, after=1))
        task = asyncio.create_task(streamed(service, raw=True, prompt="a"))
        exchange = await server.exchange(0)
        await asyncio.wait_for(exchange.began.wait(), 10)
        task.cancel()
        await within(1, exchange.left.wait())
        with pytest.raises(asyncio.CancelledError):
            await task


def test_each_choice_of_the_api_announces_what_it_has() -> None:
    found = {api: native_features("tgi", {"api": api}) for api in ("messages", "generate", "both")}
    assert found["messages"] == native_features("tgi", {})
    assert {"tools", "images", "history"} <= found["messages"]
    assert not {"raw", "top_k", "penalties", "tokenize"} & found["messages"]
    assert {"raw", "top_k", "penalties", "regex", "schema", "logprobs"} <= found["generate"]
    assert not {"tools", "images", "history", "json", "prompt_ids", "n", "best_of"} & found["generate"]
    assert found["both"] == found["messages"] | found["generate"]
    assert "regex" not in native_features("tgi", {"api": "generate", "without": ["regex"]})


async def test_what_an_api_lacks_is_refused_before_the_server_is_asked() -> None:
    turns = (Message("user", "a"),)
    async with TgiGenerateServer.running() as server, opened(server.url) as service:
        with pytest.raises(BadRequest, match='api = "generate"'):
            await streamed(service, messages=turns)
        with pytest.raises(BadRequest, match="can't do this: prompt_ids;"):
            await streamed(service, prompt_ids=(1, 2))
        async with opened(server.url, api="messages") as chats:
            with pytest.raises(BadRequest, match="can't do this: raw;"):
                await streamed(chats, raw=True, prompt="a")
        async with opened(server.url, api="both") as both:
            with pytest.raises(BadRequest, match="top_k, typical_p: this model has it for raw prompts alone"):
                await streamed(both, messages=turns, sampling=Sampling(top_k=3, typical_p=0.5))
            with pytest.raises(BadRequest, match="echo needs raw"):
                await streamed(both, prompt="a", echo=True)
    assert server.bodies == []


async def test_both_apis_behind_one_model() -> None:
    async with TgiServer.running() as server, opened(server.url, api="both") as service:
        records = await streamed(service, messages=(Message("user", "a"),))
        with pytest.raises(NotFound):
            await streamed(service, raw=True, prompt="a")
    assert text_of(records) == "Hello €!"
    assert [exchange.path for exchange in server.exchanges] == ["/v1/chat/completions", "/generate_stream"]
