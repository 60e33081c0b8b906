"""Where a provider's requests arrive, and with which key: options, variables of the SDKs, files that are renewed."""

import asyncio
import json
import os
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.fakes import google_account
from tests.fakes.anthropic_server import AnthropicServer, VertexClaudeServer
from tests.fakes.bedrock_server import BedrockServer
from tests.fakes.cohere_server import CohereServer
from tests.fakes.gemini_server import GeminiServer, VertexGeminiServer
from tests.fakes.loopback_server import LoopbackServer
from tests.fakes.loopback_tls import loopback_tls
from tests.fakes.mistral_server import MistralServer
from tests.fakes.ollama_server import OllamaServer
from tests.fakes.openai_chat_server import AzureOpenAiServer, OpenAiChatServer
from tests.fakes.plan import Exchange, Plan
from tests.fakes.tgi_server import TgiServer
from tests.flow.known_providers import PROVIDERS
from tests.observed_calls import observe_calls
from tg_base.llm import Endpoint, LlmService
from tg_bedrock.client import BedrockClient
from tg_flow.providers import open_provider
from tg_schema import TextCompletionRequest
from tg_schema.errors import BadRequest, ProviderAuth
from tg_vertexai.endpoint import VertexEndpoint

MODEL = "fake-model"
ELSEWHERE = "http://127.0.0.1:9"
"""Nobody listens there (RFC 863)."""

URLS: list[tuple[str, str, type[LoopbackServer], str]] = [
    ("anthropic", "ANTHROPIC_BASE_URL", AnthropicServer, ""),
    ("azure-ai", "AZURE_AI_ENDPOINT", OpenAiChatServer, "/v1"),
    ("azure-openai", "AZURE_OPENAI_ENDPOINT", AzureOpenAiServer, ""),
    ("bedrock", "AWS_ENDPOINT_URL", BedrockServer, ""),
    ("bedrock", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME", BedrockServer, ""),
    ("cohere", "CO_API_URL", CohereServer, ""),
    ("google-ai-studio", "GOOGLE_GEMINI_BASE_URL", GeminiServer, ""),
    ("llamafile", "LLAMAFILE_URL", OpenAiChatServer, ""),
    ("lm-studio", "LMSTUDIO_URL", OpenAiChatServer, ""),
    ("mistral", "MISTRAL_BASE_URL", MistralServer, ""),
    ("ollama", "OLLAMA_HOST", OllamaServer, ""),
    ("openai", "OPENAI_BASE_URL", OpenAiChatServer, ""),
    ("openai-compatible", "OPENAI_COMPATIBLE_BASE_URL", OpenAiChatServer, ""),
    ("tgi", "TGI_BASE_URL", TgiServer, ""),
    ("vertexai-claude", "ANTHROPIC_VERTEX_BASE_URL", VertexClaudeServer, ""),
    ("vertexai-claude", "ANTHROPIC_VERTEX_BASE_URL", VertexClaudeServer, "/v1"),
    ("vertexai-gemini", "GOOGLE_VERTEX_BASE_URL", VertexGeminiServer, ""),
    ("vllm", "VLLM_BASE_URL", OpenAiChatServer, ""),
]
KEYS: list[tuple[str, str, type[LoopbackServer]]] = [
    ("anthropic", "ANTHROPIC_API_KEY", AnthropicServer),
    ("azure-ai", "AZURE_AI_API_KEY", OpenAiChatServer),
    ("azure-openai", "AZURE_OPENAI_API_KEY", AzureOpenAiServer),
    ("cohere", "COHERE_API_KEY", CohereServer),
    ("google-ai-studio", "GOOGLE_API_KEY", GeminiServer),
    ("llamafile", "LLAMAFILE_API_KEY", OpenAiChatServer),
    ("lm-studio", "LM_API_TOKEN", OpenAiChatServer),
    ("mistral", "MISTRAL_API_KEY", MistralServer),
    ("ollama", "OLLAMA_API_KEY", OllamaServer),
    ("openai", "OPENAI_API_KEY", OpenAiChatServer),
    ("openai-compatible", "OPENAI_COMPATIBLE_API_KEY", OpenAiChatServer),
    ("tgi", "TGI_API_KEY", TgiServer),
    ("vllm", "VLLM_API_KEY", OpenAiChatServer),
]
PLACED = {provider: (variable, server, path) for provider, variable, server, path in URLS}
PREDECESSORS = {
    "anthropic": "CLAUDE_KEY",
    "azure-openai": "AZURE_TOKEN",
    "cohere": "COHERE_KEY",
    "google-ai-studio": "GOOGLE_AI_STUDIO_KEY",
    "mistral": "MISTRAL_TOKEN",
    "openai": "OPENAI_TOKEN",
}
"""The variable in which TrustGraph's processors look for a provider's key."""
KEYED = {provider: variable for provider, variable, _ in KEYS}


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment that knows no provider."""
    named = (
        {row[1] for row in URLS}
        | {row[1] for row in KEYS}
        | {*("AZURE_ENDPOINT", "CO_API_KEY", "GEMINI_API_KEY", *PREDECESSORS.values())}
    )
    for name in (
        *named,
        *(f"{name}_FILE" for name in named),
        *(name for name in os.environ if name.startswith("AWS_")),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@asynccontextmanager
async def opened(provider: str, **options: Any) -> AsyncIterator[LlmService]:
    async with aclosing(await open_provider(provider, MODEL, {"tries": 1, **options})) as service:
        yield service


async def asked(service: LlmService) -> None:
    """Ask once; the answer may be that the key or the region is wrong, as long as the request arrives."""
    with suppress(ProviderAuth, BadRequest):
        await service.generate_content(TextCompletionRequest(prompt="hi", model=MODEL))


def credentials(provider: str, url: str) -> Mapping[str, str]:
    """What a provider needs besides a URL."""
    if provider.startswith("vertexai"):
        return google_account.environment(url)
    if provider == "bedrock":
        return {"AWS_ACCESS_KEY_ID": BedrockServer.key, "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_REGION": "eu-north-1"}
    return {KEYED[provider]: "sk-some-key"}


def test_every_provider_with_a_host_is_here() -> None:
    # A pool has no URL of its own, and its key goes to each server: tests/picker/provider/test_pool_provider.py.
    without = {"demo", "llama-cpp", "pool"}
    assert {provider for provider, *_ in URLS} == set(PROVIDERS) - without
    assert set(KEYED) == set(PROVIDERS) - without - {"bedrock", "vertexai-claude", "vertexai-gemini"}


@pytest.mark.parametrize(("provider", "variable", "server", "path"), URLS)
async def test_the_sdks_variable_says_where_the_request_goes(
    provider: str, variable: str, server: type[LoopbackServer], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server.running() as theirs:
        for name, value in credentials(provider, theirs.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(variable, theirs.url + path)
        async with opened(provider) as service:
            await asked(service)
        assert len(theirs.exchanges) == 1


@pytest.mark.parametrize(("provider", "variable", "server", "path"), URLS)
async def test_the_option_wins_over_the_variable(
    provider: str, variable: str, server: type[LoopbackServer], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server.running() as ours:
        for name, value in credentials(provider, ours.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(variable, ELSEWHERE)
        option = "endpoint_url" if provider == "bedrock" else "base_url"
        async with opened(provider, **{option: ours.url + path}) as service:
            await asked(service)
        assert len(ours.exchanges) == 1


@pytest.mark.parametrize("provider", ["anthropic", "cohere", "google-ai-studio", "mistral", "openai"])
async def test_a_variable_that_is_no_url_is_refused_and_not_repeated(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYED[provider], "sk-some-key")
    monkeypatch.setenv(PLACED[provider][0], "http://me:canary@there/")
    with pytest.raises(BadRequest, match="base_url") as caught:
        await open_provider(provider, MODEL, {})
    assert "canary" not in caught.value.message


async def test_bedrock_takes_its_region_from_the_variable_that_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region stands in the scope of the signature (AWS, Signature Version 4)."""
    async with BedrockServer.running() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        for name, value in credentials("bedrock", server.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        for options, region in (({}, "eu-north-1"), ({"region": "ap-south-1"}, "ap-south-1")):
            async with opened("bedrock", **options) as service:
                await asked(service)
            assert f"/{region}/bedrock/" in server.exchanges[-1].headers["authorization"]
        monkeypatch.delenv("AWS_REGION")
        async with opened("bedrock") as service:
            await asked(service)
        assert "/us-east-1/bedrock/" in server.exchanges[-1].headers["authorization"]


def place(provider: str, url: str) -> dict[str, str]:
    _, server, path = PLACED[provider]
    return {"base_url": url + (path or ("/v1" if server in {OpenAiChatServer, TgiServer} else ""))}


def shown(exchange: Exchange) -> list[str]:
    """The keys in the request's headers."""
    return re.findall(r"sk-canary-(\w+)", str(exchange.headers))


def renew(file: Path, key: str) -> None:
    """As a careful writer does: in one step."""
    new = file.with_suffix(".new")
    new.write_text(f"{key}\n")
    new.rename(file)


@pytest.mark.parametrize("how", ["option", "variable"])
@pytest.mark.parametrize(("provider", "variable", "server"), KEYS)
async def test_a_key_of_a_file_is_the_one_that_the_file_has_now(
    provider: str, variable: str, server: type[LoopbackServer], how: str, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    renew(file, "sk-canary-first")
    options = {"key_file": str(file)} if how == "option" else {}
    os.environ[f"{variable}_FILE"] = "" if how == "option" else str(file)
    async with server.running() as theirs, opened(provider, **place(provider, theirs.url), **options) as service:
        with capture_logs() as logs:
            await asked(service)
            renew(file, "sk-canary-second")
            await asked(service)
            await asked(service)
            file.unlink()
            await asked(service)
            await asked(service)
            file.write_text("two words")
            await asked(service)
            renew(file, "sk-canary-third")
            await asked(service)
        keys = [key for exchange in theirs.exchanges for key in shown(exchange)]
    assert keys == ["first", "second", "second", "second", "second", "second", "third"]
    assert [line["event"] for line in logs if line["event"].startswith("key.")] == [
        "key.read", "key.unreadable", "key.read",
    ]  # fmt: skip
    assert "canary" not in str(logs)


@pytest.mark.parametrize("provider", ["anthropic", "cohere", "google-ai-studio", "openai"])
@pytest.mark.parametrize("text", [None, "", "  \n", "two words", "sk-canary\nsk-canary", "k€y", "x" * 70_000])
async def test_a_file_without_a_key_refuses_the_start(
    provider: str, text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv(f"{KEYED[provider]}_FILE", str(file))
    with pytest.raises(ProviderAuth, match=f"the environment variable {KEYED[provider]}_FILE names") as caught:
        await open_provider(provider, MODEL, {"base_url": ELSEWHERE})
    assert "canary" not in caught.value.message
    with pytest.raises(ProviderAuth, match="the option key_file names") as caught:
        await open_provider(provider, MODEL, {"base_url": ELSEWHERE, "key_file": str(file)})
    assert caught.value.option == ("options", "key_file")


async def test_two_keys_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(tmp_path / "canary"))
    with pytest.raises(ProviderAuth, match="OPENAI_API_KEY and OPENAI_API_KEY_FILE are both set") as caught:
        await open_provider("openai", MODEL, {})
    assert "canary" not in caught.value.message
    with pytest.raises(BadRequest, match="key_file and key_variable name two keys") as refused:
        await open_provider("openai", MODEL, {"key_file": "x", "key_variable": "OPENAI_API_KEY"})
    assert refused.value.option == ("options", "key_file")
    with pytest.raises(BadRequest) as refused:
        await open_provider("openai", MODEL, {"key_variable": "", "base_url": "there"})
    assert refused.value.option == ("options", "base_url")


async def test_a_variable_that_holds_no_key_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary\r\nX-Other: header")
    with pytest.raises(ProviderAuth, match="OPENAI_API_KEY holds no key") as caught:
        await open_provider("openai", MODEL, {})
    assert "canary" not in caught.value.message


@pytest.mark.parametrize(("provider", "older"), PREDECESSORS.items())
async def test_a_key_is_asked_for_by_name_and_the_predecessors_is_taken(
    provider: str, older: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options, missing in (({}, KEYED[provider]), ({"key_variable": "MY_KEY"}, "MY_KEY")):
        with pytest.raises(ProviderAuth, match=f"{missing} is not set"):
            await open_provider(provider, MODEL, {"base_url": ELSEWHERE, **options})
    monkeypatch.setenv(older, "sk-canary-older")
    server = PLACED[provider][1]
    async with server.running() as theirs, opened(provider, **place(provider, theirs.url)) as service:
        await asked(service)
        assert shown(theirs.exchanges[0]) == ["older"]


@pytest.mark.parametrize(("provider", "variable", "server"), KEYS)
async def test_a_server_that_needs_no_key_gets_none(
    provider: str, variable: str, server: type[LoopbackServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the one that the provider's SDK finds in the environment by itself."""
    monkeypatch.setenv(variable, "sk-canary-not-for-them")
    options = {**place(provider, ""), "key_variable": ""}
    async with server.running() as theirs:
        options["base_url"] = theirs.url + options["base_url"]
        try:
            async with opened(provider, **options) as service:
                await asked(service)
        finally:
            told = [*(str(exchange.headers) + exchange.path for exchange in theirs.exchanges)]
    assert len(told) == 1
    assert "canary" not in told[0]


async def test_streams_that_run_keep_their_connection_while_the_key_is_renewed(tmp_path: Path) -> None:
    file = tmp_path / "key"
    renew(file, OpenAiChatServer.key)
    request = TextCompletionRequest(prompt="hi", model=MODEL)
    async with (
        OpenAiChatServer.running() as theirs,
        opened("openai", base_url=f"{theirs.url}/v1", key_file=str(file)) as service,
    ):
        theirs.play(Plan(cut=1), Plan())
        stream = service.generate_content_stream(request)
        text = (await anext(stream)).text
        renew(file, "sk-another")
        with pytest.raises(ProviderAuth):
            await service.generate_content(request)
        renew(file, OpenAiChatServer.key)
        several = await asyncio.gather(*(service.generate_content(request) for _ in range(4)))
        text += "".join([chunk.text async for chunk in stream])
    assert {text, *(chunk.text for chunk in several)} == {"Hello €!"}


@pytest.mark.parametrize("how", ["file", "variable"])
async def test_a_key_of_bedrocks_own_follows_its_file(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3 shows it over TLS alone. It wins over AWS's credentials, as with AWS's own tools."""
    file = tmp_path / "key"
    renew(file, "sk-canary-first")
    for name, value in credentials("bedrock", "").items():
        monkeypatch.setenv(name, value)
    if how == "file":
        monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK_FILE", str(file))
    else:
        monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "sk-canary-first")
    tls, certificate = loopback_tls(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    async with BedrockServer.running(tls) as theirs, opened("bedrock", endpoint_url=theirs.url) as service:
        await asked(service)
        renew(file, "sk-canary-second")
        await asked(service)
        keys = [key for exchange in theirs.exchanges for key in shown(exchange)]
    assert keys == ["first", "second" if how == "file" else "first"]


@pytest.mark.parametrize("provider", ["google-ai-studio", "vertexai-gemini"])
def test_a_further_key_reads_no_certificates(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's SDK makes two TLS contexts for each client that is given none."""
    for name, value in google_account.environment(ELSEWHERE).items():
        monkeypatch.setenv(name, value)
    if provider == "google-ai-studio":
        connect, endpoint = import_module("tg_flow.providers.gemini.client").connect, Endpoint(ELSEWHERE, MODEL, "key")
    else:
        connect, endpoint = import_module("tg_vertexai.gemini_client").connect, VertexEndpoint(ELSEWHERE, MODEL)
    connect(endpoint)
    made: list[Mapping[str, Any]] = []
    with observe_calls(ssl.create_default_context, made.append):
        connect(endpoint)
    assert made == []


async def test_a_further_key_reads_no_description_of_awss_services(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in credentials("bedrock", "").items():
        monkeypatch.setenv(name, value)
    read: list[Mapping[str, Any]] = []
    with observe_calls(json.loads, read.append):
        for _ in range(2):
            read.clear()
            await BedrockClient.open("eu-west-1", None, ELSEWHERE, None).aclose()
    assert read == []
