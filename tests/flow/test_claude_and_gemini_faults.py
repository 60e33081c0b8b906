"""The providers of Claude and Gemini when what they get is neither an answer nor an error of their API."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from tests.fakes import google_account
from tests.fakes.anthropic_server import AnthropicServer, VertexClaudeServer
from tests.fakes.endless import pour
from tests.fakes.gemini_server import GeminiServer, VertexGeminiServer
from tests.fakes.loopback_server import LoopbackServer
from tests.fakes.plan import Counts, Fault, Plan
from tests.within import within
from tg_base.llm import LlmService
from tg_flow.providers import open_provider
from tg_schema import TextCompletionRequest, TextCompletionResponse, TgError
from tg_schema.errors import IncompleteStream, NotFound, ProtocolError, ProviderAuth, Unavailable

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

pytestmark = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)


@asynccontextmanager
async def opened(
    provider: Provider, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> AsyncIterator[LlmService]:
    for name, value in provider.environment(server.url).items():
        monkeypatch.setenv(name, value)
    service = await open_provider(provider.name, "fake-model", {"base_url": server.url, "tries": 1, **options})
    try:
        yield service
    finally:
        await service.aclose()


async def responses(service: LlmService, into: list[TextCompletionResponse] | None = None) -> None:
    async with aclosing(service.on_request(REQUEST)) as stream:
        async for response in stream:
            if into is not None:
                into.append(response)


def saying(server: type[LoopbackServer], data: bytes) -> type[LoopbackServer]:
    """A server whose `Fault.ERROR` is these bytes."""
    return type("Saying", (server,), {"error": lambda self, plan: data})


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
            await responses(service, received)
        assert (type(caught.value), "".join(each.response or "" for each in received)) == (kind, "Hel")
        assert caught.value.__cause__ is None


def answering(server: type[LoopbackServer], *answers: web.Response) -> type[LoopbackServer]:
    """A server whose `Fault.REFUSE` is this answer."""
    return type("Answering", (server,), {"refusal": lambda self, plan: answers[0]})


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
            await responses(service)
    assert type(caught.value) is kind


async def test_nobody_listens(provider: Provider, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with provider.server.running() as server:
        options = {"base_url": f"http://127.0.0.1:{unused_tcp_port}"}
        async with opened(provider, server, monkeypatch, **options) as service:
            with pytest.raises(Unavailable, match="cannot be reached"):
                await responses(service)


async def test_a_secret_is_never_told(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with provider.server.running() as server, opened(provider, server, monkeypatch) as service:
        await responses(service)
        server.play(Plan(fault=Fault.REFUSE, error=ProviderAuth))
        with pytest.raises(ProviderAuth) as caught:
            await responses(service)
        (used,) = {exchange.headers.get("authorization") for exchange in server.exchanges}
    told = f"{caught.value!r} {caught.value.__cause__} {caplog.text}"
    for secret in (AnthropicServer.key, GeminiServer.key, google_account.TOKEN, used or "Bearer", "PRIVATE KEY"):
        assert secret not in told


async def test_what_is_known_of_a_left_stream_is_counted(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"model": "fake-model", "direction": "in"}
    before = REGISTRY.get_sample_value("tg_tokens_total", labels) or 0
    async with provider.server.running() as server, opened(provider, server, monkeypatch) as service:
        server.play(Plan(fault=Fault.STALL, after=1, counts=Counts(tokens_in=11)))
        async with aclosing(service.on_request(REQUEST)) as stream:
            await anext(stream)
        await within(1, (await server.exchange(0)).left.wait())
    assert (REGISTRY.get_sample_value("tg_tokens_total", labels) or 0) - before == 11


async def test_many_answers_at_once_are_whole(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[list[TextCompletionResponse]] = [[] for _ in range(20)]
    async with provider.server.running() as server, opened(provider, server, monkeypatch) as service:
        await asyncio.gather(*(responses(service, into) for into in answers))
    assert {"".join(each.response or "" for each in answer) for answer in answers} == {"Hello €!"}
    assert {(answer[-1].in_token, answer[-1].out_token) for answer in answers} == {(11, 7)}


async def test_connections_are_used_again(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[int] = []

    def read(self: LoopbackServer, request: web.Request, body: bytes) -> Any:
        ports.append(request.get_extra_info("peername")[1])
        return provider.server.read(self, request, body)

    noting: type[LoopbackServer] = type("Noting", (provider.server,), {"read": read})
    async with noting.running() as server, opened(provider, server, monkeypatch) as service:
        for _ in range(3):
            await responses(service)
    assert len(ports) == 3
    assert len(set(ports)) == 1


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
        asking: list[Awaitable[Any]] = [responses(service)]
        if provider.server is not VertexClaudeServer:  # it has no list to ask for
            asking.append(service.models())
        ends = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(end) for end in ends} == {Unavailable}
