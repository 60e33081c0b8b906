"""Claude and Gemini: what reaches them, credentials, and what goes wrong; each fault is one typed error."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from tests.fakes import google_account
from tests.fakes.anthropic_server import AnthropicServer, VertexClaudeServer
from tests.fakes.endless import pour
from tests.fakes.gemini_server import GeminiServer, VertexGeminiServer
from tests.fakes.loopback_server import LoopbackServer
from tests.fakes.plan import Counts, Fault, Plan
from tests.fakes.silent_server import SilentServer
from tests.flow.usage_records import record_here
from tests.provider_matrix.asking import WEATHER, joined, responses, turn_of
from tests.provider_matrix.case import Case, cases, staged
from tests.within import within
from tg_base.llm import LlmService
from tg_flow.providers import open_provider
from tg_schema import (
    ImagePart,
    Message,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    TextPart,
    TgError,
    Tool,
    ToolCall,
)
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import BadRequest, IncompleteStream, NotFound, ProtocolError, ProviderAuth, Unavailable
from tg_schema.text_completion import Foreign, Reasoning

CLAUDE = [case for case in cases() if case.provider in {"anthropic", "vertexai-claude"}]
EDITING = Foreign(
    "anthropic",
    {"context_management": {"edits": []}},
    ({"type": "web_search_20250305", "name": "web_search", "max_uses": 2},),
    ("context-management-2025-06-27", "another-2026-01-01"),
)


@pytest.mark.parametrize("case", CLAUDE, ids=lambda case: case.provider)
async def test_fields_tools_and_betas_of_anthropic_reach_it(case: Case) -> None:
    async with staged(case) as stage, stage.opened() as service:
        request = TextCompletionRequest(prompt="p", foreign=EDITING)
        assert joined(await responses(service, request)).response == "Hello €!"
        exchange = stage.wire.exchanges[0]
        assert exchange.headers["anthropic-beta"] == ",".join(EDITING.betas)
        assert exchange.asked is not None
        assert [tool.name for tool in exchange.asked.tools] == ["web_search"]
        without = TextCompletionRequest(prompt="p", foreign=msgspec.structs.replace(EDITING, betas=()))
        with pytest.raises(BadRequest):
            await responses(service, without)


@pytest.mark.parametrize("case", CLAUDE, ids=lambda case: case.provider)
async def test_cache_marks_effort_and_hints_are_accepted(case: Case) -> None:
    request = TextCompletionRequest(
        messages=(
            Message("developer", (TextPart("be brief", cache="1h"),)),
            Message("user", (TextPart("x", cache="5m"), ImagePart(data="QQ==", cache="5m"))),
            Message("assistant", tool_calls=(ToolCall("c1", "weather", cache="5m"),)),
            Message("tool", "y", tool_call_id="c1", cache="5m"),
        ),
        tools=(msgspec.structs.replace(WEATHER, cache="1h"),),
        parallel_tool_calls=False,
        reasoning=Reasoning("high"),
        user="u",
    )
    async with staged(case) as stage, stage.opened() as service:
        assert joined(await responses(service, request)).response == "Hello €!"
        asked = stage.wire.exchanges[0].asked
        assert asked is not None
        assert asked.system == "be brief"


@pytest.mark.parametrize("streaming", [True, False])
async def test_claude_thinks_on_through_rounds_that_a_request_asks_for(streaming: bool) -> None:
    """A request may ask for thinking that the configuration does not; a piece of it that changes is refused."""
    (case, _) = CLAUDE
    async with staged(case) as stage, stage.opened() as service:
        called = Plan(("I look. ",), ("let me ", "think"), redacted=True, finish="stop")
        stage.wire.play(called)
        reasoning, sampling = Reasoning(budget=2000), Sampling(max_tokens=4000)
        request = TextCompletionRequest(prompt="a", streaming=streaming, reasoning=reasoning, sampling=sampling)
        turn = turn_of(await responses(service, request))
        told = [part for part in turn.parts if isinstance(part, ReasoningPart)]
        assert [part.text for part in told] == ["let me think", ""]
        turn = msgspec.structs.replace(turn, tool_calls=(ToolCall("c1", "weather"),))
        follows = msgspec.structs.replace(
            request,
            prompt=None,
            messages=(*request.turns, turn, Message("tool", "y", tool_call_id="c1")),
            tools=(WEATHER,),
        )
        assert (await responses(service, follows))[-1].finish_reason == "stop"
        changed = tuple(
            msgspec.structs.replace(part, text="let me not") if part is told[0] else part for part in turn.parts
        )
        forged = msgspec.structs.replace(turn, content=changed)
        with pytest.raises(BadRequest):
            await responses(
                service, msgspec.structs.replace(follows, messages=(*request.turns, forged, *follows.messages[2:]))
            )


@pytest.mark.parametrize("operation", [None, "count-tokens"])
@pytest.mark.parametrize("case", CLAUDE, ids=lambda case: case.provider)
async def test_tools_nested_deeper_than_the_sdk_can_write_are_refused(case: Case, operation: str | None) -> None:
    parameters: dict[str, Any] = {}
    for _ in range(100_000):
        parameters = {"not": parameters}
    request = TextCompletionRequest(prompt="p", tools=(Tool("f", "", parameters),), operation=operation)
    async with staged(case) as stage, stage.opened() as service:
        with pytest.raises(BadRequest, match="nested too deep"):
            await responses(service, request)


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
    async with aclosing(
        await open_provider(provider, "fake-model", {"base_url": url, "tries": 1, **options})
    ) as service:
        return (await service.generate_content(TextCompletionRequest(prompt="hi", model="fake-model"))).text


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


REQUEST = TextCompletionRequest(prompt="say hello", streaming=True)


class Provider(NamedTuple):
    """A provider, its server, and the environment that leads to it."""

    name: str
    server: type[LoopbackServer]
    environment: Callable[[str], Mapping[str, str]]


PROVIDERS = (
    Provider("anthropic", AnthropicServer, lambda _: {"ANTHROPIC_API_KEY": AnthropicServer.key}),
    Provider("google-ai-studio", GeminiServer, lambda _: {"GOOGLE_API_KEY": GeminiServer.key}),
    Provider("vertexai-claude", VertexClaudeServer, google_account.environment),
    Provider("vertexai-gemini", VertexGeminiServer, google_account.environment),
)

EACH = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)


@asynccontextmanager
async def opened(
    provider: Provider, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> AsyncIterator[LlmService]:
    for name, value in provider.environment(server.url).items():
        monkeypatch.setenv(name, value)
    async with aclosing(
        await open_provider(provider.name, "fake-model", {"base_url": server.url, "tries": 1, **options})
    ) as service:
        yield service


async def read_all(service: LlmService, into: list[TextCompletionResponse] | None = None) -> None:
    async with aclosing(service.on_request(REQUEST)) as stream:
        async for response in stream:
            if into is not None:
                into.append(response)


def saying(server: type[LoopbackServer], data: bytes) -> type[LoopbackServer]:
    """A server whose `Fault.ERROR` is these bytes."""
    return type("Saying", (server,), {"error": lambda self, plan: data})


@EACH
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"data: {nonsense\n\n", ProtocolError),
        (b'data: "text"\n\n', ProtocolError),
        (b"data: " + b"[" * 100_000 + b"\n\n", ProtocolError),
        (b"data: \xff\xfe\n\n", ProtocolError),
        (b"data: " + b"x" * 17_000_000, ProtocolError),
        (bytes(range(256)), IncompleteStream),
        (b": comments\n\n: alone\n\n", IncompleteStream),
        (b"data: [DONE]\n\n", ProtocolError),
    ],
    ids=["nonsense", "text", "deep", "no-utf8", "endless", "bytes", "comments", "done"],
)
async def test_garbage_in_mid_stream(
    provider: Provider, data: bytes, kind: type[TgError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with saying(provider.server, data).running() as server, opened(provider, server, monkeypatch) as service:
        server.play(Plan(fault=Fault.ERROR, after=1))
        received: list[TextCompletionResponse] = []
        with pytest.raises(TgError) as caught:
            await read_all(service, received)
        assert (type(caught.value), "".join(each.response or "" for each in received)) == (kind, "Hel")
        assert caught.value.__cause__ is None


def answering(server: type[LoopbackServer], *answers: web.Response) -> type[LoopbackServer]:
    """A server whose `Fault.REFUSE` is this answer."""
    return type("Answering", (server,), {"refusal": lambda self, plan: answers[0]})


@EACH
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (lambda: web.Response(text="<html>", content_type="text/html"), ProtocolError),
        (lambda: web.json_response({}), ProtocolError),
        (lambda: web.Response(status=502, text="<html>"), Unavailable),
        (lambda: web.Response(status=500, body=b"x" * 1_000_000), Unavailable),
        (lambda: web.Response(status=403, body=b"[" * 60_000), ProviderAuth),
        (lambda: web.Response(status=404), NotFound),
        (lambda: web.Response(status=204), IncompleteStream),
        (lambda: web.Response(status=307, headers={"Location": "http://127.0.0.1:9/"}), ProtocolError),
    ],
    ids=["html", "json", "502", "500", "403", "404", "204", "redirect"],
)
async def test_answers_of_somebody_else(
    provider: Provider, answer: Callable[[], web.Response], kind: type[TgError], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind_of_server = answering(provider.server, answer())
    async with kind_of_server.running() as server, opened(provider, server, monkeypatch) as service:
        server.play(Plan(fault=Fault.REFUSE))
        with pytest.raises(TgError) as caught:
            await read_all(service)
    assert type(caught.value) is kind


@EACH
async def test_nobody_listens(provider: Provider, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with provider.server.running() as server:
        options = {"base_url": f"http://127.0.0.1:{unused_tcp_port}"}
        async with opened(provider, server, monkeypatch, **options) as service:
            with pytest.raises(Unavailable, match="cannot be reached"):
                await read_all(service)


@EACH
async def test_a_secret_is_never_told(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with provider.server.running() as server, opened(provider, server, monkeypatch) as service:
        await read_all(service)
        server.play(Plan(fault=Fault.REFUSE, error=ProviderAuth))
        with pytest.raises(ProviderAuth) as caught:
            await read_all(service)
        (used,) = {exchange.headers.get("authorization") for exchange in server.exchanges}
    told = f"{caught.value!r} {caught.value.__cause__} {caplog.text}"
    for secret in (AnthropicServer.key, GeminiServer.key, google_account.TOKEN, used or "Bearer", "PRIVATE KEY"):
        assert secret not in told


@EACH
async def test_what_is_known_of_a_left_stream_is_counted(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"model": "fake-model", "direction": "in"}
    before = REGISTRY.get_sample_value("tg_tokens_total", labels) or 0
    async with provider.server.running() as server, opened(provider, server, monkeypatch) as service:
        server.play(Plan(fault=Fault.STALL, after=1, counts=Counts(tokens_in=11)))
        async with aclosing(service.on_request(REQUEST)) as stream:
            await anext(stream)
        await within(1, (await server.exchange(0)).left.wait())
    assert (REGISTRY.get_sample_value("tg_tokens_total", labels) or 0) - before == 11


@EACH
async def test_many_answers_at_once_are_whole(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[list[TextCompletionResponse]] = [[] for _ in range(20)]
    async with provider.server.running() as server, opened(provider, server, monkeypatch) as service:
        await asyncio.gather(*(read_all(service, into) for into in answers))
    assert {"".join(each.response or "" for each in answer) for answer in answers} == {"Hello €!"}
    assert {(answer[-1].in_token, answer[-1].out_token) for answer in answers} == {(11, 7)}


@EACH
@pytest.mark.parametrize("endless", [False, True])
async def test_an_error_whose_body_never_ends(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, *, endless: bool
) -> None:
    """Its status is enough, whether the body stalls or never stops."""

    async def stalling(self: LoopbackServer, request: web.Request) -> web.StreamResponse:
        if request.path == "/token":
            return await provider.server._handle(self, request)
        response = web.StreamResponse(status=503)
        await response.prepare(request)
        await response.write(b"{")
        if endless:
            await pour(response, b" " * 65536)
        await asyncio.Event().wait()
        return response

    server_kind: type[LoopbackServer] = type("Stalling", (provider.server,), {"_handle": stalling})
    async with server_kind.running() as server, opened(provider, server, monkeypatch) as service:
        asking: list[Awaitable[Any]] = [read_all(service)]
        if provider.server is not VertexClaudeServer:  # it has no list to ask for
            asking.append(service.models())
        ends = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(end) for end in ends} == {Unavailable}
