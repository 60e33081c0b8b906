"""What the openai provider says of conversations, tools and models, where compatible servers differ from OpenAI."""

import json
from contextlib import aclosing
from typing import Any

import pytest

from tests.fakes.openai_chat_server import AzureOpenAiServer, CompatibleServer, OpenAiChatServer
from tests.fakes.openai_server import Fault, OpenAiServer, Script
from tests.fakes.openai_transcript import done, event, finish_event
from tests.fakes.plan import Plan
from tests.flow.openai_asking import MODEL, Open, chunks
from tests.provider_matrix.asking import PNG, WEATHER, responses
from tg_base.llm import join_chunks
from tg_base.llm.base_url import base_url_from
from tg_base.llm.http import UNREADABLE
from tg_flow.providers import open_provider
from tg_flow.providers.openai import model_list
from tg_schema import ImagePart, Message, ModelInfo, TextCompletionRequest, ToolCallDelta
from tg_schema.errors import BadRequest, NotFound, ProtocolError, ProviderAuth

MODEL_AT_HOME = OpenAiChatServer.model
ASKED = TextCompletionRequest(prompt="weather?", tools=(WEATHER,), streaming=True)


async def played(server: OpenAiServer, open_openai: Open, *deltas: dict[str, Any], reason: str) -> Any:
    raw = b"".join(event(MODEL, delta) for delta in deltas) + finish_event(MODEL, reason) + done()
    server.play(Script(fault=Fault.RAW, raw=raw))
    (whole,) = join_chunks(await chunks(await open_openai(), ASKED))
    return whole


def call(name: str | None = None, arguments: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"tool_calls": [{**fields, "function": {"name": name, "arguments": arguments}}]}


async def test_an_answer_to_a_forced_call_ends_with_stop_and_is_a_call(
    openai_server: OpenAiServer, open_openai: Open
) -> None:
    answer = await played(openai_server, open_openai, call("weather", "{}", index=0, id="c1"), reason="stop")
    assert answer.finish_reason == "tool_calls"
    assert answer.tool_calls == (ToolCallDelta(0, "c1", "weather", "{}"),)


async def test_calls_without_numbers_are_told_apart_by_their_ids(
    openai_server: OpenAiServer, open_openai: Open
) -> None:
    answer = await played(
        openai_server,
        open_openai,
        call("weather", "", id="c1"),
        call(None, '{"city":', id=""),
        call(None, '"Ulm"}'),
        call("weather", '{"city":"Bonn"}', id="c2"),
        reason="tool_calls",
    )
    assert answer.tool_calls == (
        ToolCallDelta(0, "c1", "weather", '{"city":"Ulm"}'),
        ToolCallDelta(1, "c2", "weather", '{"city":"Bonn"}'),
    )


async def test_length_stays_length_in_the_middle_of_a_call(openai_server: OpenAiServer, open_openai: Open) -> None:
    answer = await played(openai_server, open_openai, call("weather", '{"ci', index=0, id="c1"), reason="length")
    assert answer.finish_reason == "length"


async def test_text_and_a_call_in_one_event(openai_server: OpenAiServer, open_openai: Open) -> None:
    both = {"content": "I look. ", "reasoning_content": "hm", **call("weather", "{}", index=0, id="c1")}
    answer = await played(openai_server, open_openai, both, reason="tool_calls")
    assert (answer.text, answer.reasoning, len(answer.tool_calls)) == ("I look. ", "hm", 1)


async def test_usage_details_may_be_missing_or_empty(openai_server: OpenAiServer, open_openai: Open) -> None:
    usage = (
        b'"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":null,"completion_tokens_details":{}}'
    )
    raw = finish_event(MODEL, "stop").replace(b'"usage":null', usage) + done()
    openai_server.play(Script(fault=Fault.RAW, raw=raw))
    last = (await responses(await open_openai()))[-1]
    assert (last.in_token, last.out_token, last.cached_token, last.reasoning_token) == (5, 2, None, None)


async def test_images_of_a_tool_are_refused(openai_server: OpenAiServer, open_openai: Open) -> None:
    picture = Message("assistant", (ImagePart(data=PNG),))
    with pytest.raises(BadRequest, match="images from the user only"):
        await responses(await open_openai(), TextCompletionRequest(messages=(picture,), prompt="and?"))
    assert openai_server.exchanges == []


async def test_further_fields_of_the_configuration_are_sent() -> None:
    async with CompatibleServer.running() as server:
        options = {"base_url": f"{server.url}/v1", "extra_body": {"top_k": 3, "seed": 5}}
        async with aclosing(await open_provider("vllm", MODEL_AT_HOME, options)) as provider:
            await responses(provider, TextCompletionRequest(prompt="p"))
        asked = server.exchanges[0].asked
        assert asked is not None
        assert (asked.sampling.top_k, asked.sampling.seed) == (3, 5)


async def test_a_key_that_is_not_needed_is_used_where_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", OpenAiChatServer.key)
    async with (
        OpenAiChatServer.running() as server,
        aclosing(await open_provider("vllm", MODEL_AT_HOME, {"base_url": f"{server.url}/v1"})) as provider,
    ):
        assert len(await provider.models()) == 2


async def test_azure_takes_its_version_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_API_VERSION", "2025-01-01-preview")
    monkeypatch.setenv("AZURE_TOKEN", AzureOpenAiServer.key)
    async with AzureOpenAiServer.running() as server:
        for options, version in (({}, "2025-01-01-preview"), ({"api_version": "2026-01-01"}, "2026-01-01")):
            async with aclosing(
                await open_provider("azure-openai", "mine", {"base_url": server.url, "tries": 1, **options})
            ) as provider:
                with pytest.raises(NotFound, match="does not know the model or the path"):
                    await responses(provider, TextCompletionRequest(prompt="p"))
            path = server.exchanges[-1].path
            assert path == f"/openai/deployments/mine/chat/completions?api-version={version}"


@pytest.mark.parametrize("provider", ["azure-openai", "azure-ai", "openai-compatible"])
async def test_an_address_that_is_not_there_is_asked_for(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_OPENAI_ENDPOINT", "AZURE_AI_ENDPOINT", "AZURE_ENDPOINT", "OPENAI_COMPATIBLE_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadRequest, match=r"needs the URL of its API: set base_url, or the variable"):
        await open_provider(provider, "m", {})


@pytest.mark.parametrize(
    ("said", "variable", "url"),
    [
        (None, None, "http://default/v1"),
        (None, "http://there:1234", "http://there:1234/v1"),
        (None, "http://there:1234/", "http://there:1234/v1"),
        (None, "http://there/api/v2/", "http://there/api/v2"),
        (None, "http://there/v1/chat/completions", "http://there/v1"),
        ("http://said", "http://there", "http://said"),
    ],
)
def test_the_configuration_wins_over_the_environment(
    said: str | None, variable: str | None, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_URL", variable or " ")
    assert base_url_from(said, ("NO_SUCH_URL", "THEIR_URL"), "http://default/v1", "/v1") == url


def test_a_list_of_models() -> None:
    body = {"object": "list", "data": [{"id": "a", "created": 5, "owned_by": "me", "root": "x"}, {"id": "b"}]}
    assert model_list(json.dumps(body).encode()) == (ModelInfo("a", "me", 5), ModelInfo("b"))


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"data":{}}', b'{"data":[{"name":"a"}]}', b"<html>", b"[" * 100_000]
)
def test_what_is_no_list_of_models(body: bytes) -> None:
    with pytest.raises(UNREADABLE):
        model_list(body)


async def test_a_list_of_models_has_an_end() -> None:
    async with CompatibleServer.running() as server:
        server.play(Plan(models=(ModelInfo("x" * 5_000_000),)))
        async with aclosing(await open_provider("vllm", MODEL_AT_HOME, {"base_url": f"{server.url}/v1"})) as provider:
            with pytest.raises(ProtocolError, match="too long"):
                await provider.models()


async def test_a_list_of_models_needs_the_key() -> None:
    async with (
        OpenAiChatServer.running() as server,
        aclosing(await open_provider("openai", "m", {"base_url": f"{server.url}/v1", "key_variable": ""})) as provider,
    ):
        with pytest.raises(ProviderAuth):
            await provider.models()
