"""The providers of Claude and Gemini before their first request: keys, files, projects, and what they import."""

import asyncio
import json
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import google_account
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.gemini_server import GeminiServer, VertexGeminiServer
from tests.fakes.silent_server import SilentServer
from tests.flow.usage_records import record_here
from tg_flow.providers import open_provider
from tg_schema import TextCompletionRequest
from tg_schema.errors import BadRequest, ProviderAuth, Unavailable

VERTEX = ("vertexai-claude", "vertexai-gemini")
VARIABLES = (
    "ANTHROPIC_API_KEY",
    "CLAUDE_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_AI_STUDIO_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_LOCATION",
)


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variables, no default credentials of a user, no metadata server."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


async def asked(provider: str, url: str, **options: Any) -> str:
    service = await open_provider(provider, "fake-model", {"base_url": url, "tries": 1, **options})
    try:
        return (await service.generate_content(TextCompletionRequest(prompt="hi", model="fake-model"))).text
    finally:
        await service.aclose()


@pytest.mark.parametrize(
    ("provider", "variable"), [("anthropic", "ANTHROPIC_API_KEY"), ("google-ai-studio", "GOOGLE_API_KEY")]
)
async def test_a_missing_key_names_its_variable(provider: str, variable: str) -> None:
    with pytest.raises(ProviderAuth, match=f"{variable} is not set"):
        await open_provider(provider, "m", {})
    with pytest.raises(ProviderAuth, match="MY_KEY is not set"):
        await open_provider(provider, "m", {"key_variable": "MY_KEY"})


async def test_the_predecessors_variables_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_KEY", AnthropicServer.key)
    monkeypatch.setenv("GOOGLE_AI_STUDIO_KEY", GeminiServer.key)
    async with AnthropicServer.running() as server:
        assert await asked("anthropic", server.url) == "Hello €!"
    async with GeminiServer.running() as server:
        assert await asked("google-ai-studio", server.url) == "Hello €!"


async def test_a_server_that_needs_no_key_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-for-them")
    async with AnthropicServer.running() as server:
        with pytest.raises(ProviderAuth):
            await asked("anthropic", server.url, key_variable="")
        headers = server.exchanges[0].headers
    assert not {"authorization", "x-api-key"} & set(headers)


@pytest.mark.parametrize("provider", VERTEX)
async def test_no_credentials_at_all(provider: str) -> None:
    with pytest.raises(ProviderAuth, match="let GOOGLE_APPLICATION_CREDENTIALS name") as raised:
        await open_provider(provider, "m", {"location": "global"})
    assert raised.value.option == ("options", "credentials_file")


@pytest.mark.parametrize("provider", VERTEX)
@pytest.mark.parametrize("text", [None, "a secret", "{}", '{"type": "service_account"}', '{"type": "a secret"}'])
async def test_credentials_that_are_none(
    provider: str, text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ProviderAuth, match="option credentials_file") as by_option:
        await open_provider(provider, "m", {"location": "global", "credentials_file": str(file)})
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(ProviderAuth, match="GOOGLE_APPLICATION_CREDENTIALS names a file") as by_variable:
        await open_provider(provider, "m", {"location": "global"})
    assert "secret" not in f"{by_option.value} {by_variable.value}"


@pytest.mark.parametrize("provider", VERTEX)
async def test_a_place_is_needed(provider: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", google_account.key_file("http://127.0.0.1:9/token"))
    with pytest.raises(ProviderAuth, match="GOOGLE_CLOUD_LOCATION") as raised:
        await open_provider(provider, "m", {})
    assert raised.value.option == ("options", "location")
    user = {"type": "authorized_user", "client_id": "1", "client_secret": "2", "refresh_token": "3"}
    file = tmp_path / "user.json"
    file.write_text(json.dumps(user))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(ProviderAuth, match="GOOGLE_CLOUD_PROJECT"):
        await open_provider(provider, "m", {"location": "global"})


@pytest.mark.parametrize("provider", VERTEX)
async def test_nobody_gives_a_token(provider: str, unused_tcp_port: int) -> None:
    file = google_account.key_file(f"http://127.0.0.1:{unused_tcp_port}/token")
    async with VertexGeminiServer.running() as server:
        with pytest.raises(Unavailable):
            await asked(provider, server.url, credentials_file=file, location="a-place")
        refusing = google_account.key_file(f"{server.url}/no-token")
        with pytest.raises(ProviderAuth, match="gave no access token"):
            await asked(provider, server.url, credentials_file=refusing, location="a-place")


@pytest.mark.parametrize("provider", VERTEX)
async def test_a_call_left_before_it_has_a_token_is_none(provider: str) -> None:
    records = record_here()
    async with SilentServer.running() as server:
        file = google_account.key_file(f"{server.url}/token")
        table = {"base_url": server.url, "credentials_file": file, "location": "a-place"}
        async with aclosing(await open_provider(provider, "m", table)) as service:
            asking = asyncio.ensure_future(anext(service.on_request(TextCompletionRequest(prompt="hi"))))
            await server.asked.wait()
            asking.cancel()
            await asyncio.wait([asking])
    assert records == []


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({"temperature": 1.5}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"thinking": 5}, "thinking"),
        ({"thinking": "deep"}, "thinking"),
        ({"schema_by": "prayer"}, "schema_by"),
        ({"thoughts": True}, "thoughts"),
    ],
)
async def test_wrong_options_of_claude(table: dict[str, Any], field: str) -> None:
    for provider in ("anthropic", "vertexai-claude"):
        with pytest.raises(BadRequest, match=f'provider "{provider}": .*{field}'):
            await open_provider(provider, "m", table)


SDKS = ("anthropic", "google.genai", "google.auth", "google.cloud.aiplatform", "vertexai", "httpx", "httpx2", "openai")


def loaded(code: str) -> set[str]:
    """Which SDKs a fresh process has after running this."""
    told = f"import sys\n{code}\nprint(*(name for name in {SDKS!r} if name in sys.modules))"
    return set(subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    ("module", "connection", "own"),
    [
        ("tg_flow.providers.anthropic.provider", "tg_flow.providers.anthropic.client", {"anthropic", "httpx2"}),
        ("tg_vertexai.provider", "tg_vertexai.claude_client", {"anthropic", "httpx2", "google.auth"}),
        ("tg_vertexai.provider", "tg_vertexai.gemini_client", {"google.genai", "google.auth", "httpx"}),
    ],
)
def test_only_the_connection_imports_an_sdk_and_only_its_own(module: str, connection: str, own: set[str]) -> None:
    assert loaded(f"import {module}") == set()
    sdks = {"anthropic", "google.genai", "google.cloud.aiplatform", "vertexai", "openai"}
    assert loaded(f"import {connection}") & sdks == own & sdks


def test_google_ai_studio_imports_no_other_sdk() -> None:
    assert loaded("import tg_flow.providers.gemini.provider") == set()
    found = loaded("import tg_flow.providers.gemini.client")
    assert not found & {"anthropic", "google.cloud.aiplatform", "vertexai", "openai"}
