"""Vectors of the providers that have them, through their real SDKs, from a server that speaks their wires."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fakes.embedding_server import (
    CohereBody,
    EmbeddingServer,
    GeminiBody,
    GeminiContent,
    GeminiPart,
    GeminiRequest,
    MistralBody,
    OllamaBody,
    OpenAiBody,
)
from tests.flow.known_providers import native_features
from tests.flow.usage_records import record_here
from tg_base.llm import LlmService
from tg_base.server import ACCOUNT
from tg_base.telemetry import EndedSpan, Span, record_spans, span_names, trace
from tg_flow.providers import open_provider
from tg_schema import TextCompletionRequest, TextCompletionResponse, Usage
from tg_schema.errors import BadRequest, NotFound, ProtocolError

MODEL = EmbeddingServer.model
TEXTS = ("one", "three", "é")


def gemini(*texts: str, task: str | None = None, size: int | None = None) -> GeminiBody:
    return GeminiBody(
        tuple(GeminiRequest(f"models/{MODEL}", GeminiContent((GeminiPart(text),)), task, size) for text in texts)
    )


@dataclass(frozen=True)
class Wire:
    """One provider.

    Attributes:
        provider: its name in the registry.
        path: of its `base_url`.
        sent: the body of a plain request; and of one with everything that it has.
        rich: the further fields of that request.
        options: further ones.
        extra: what a configuration adds.
    """

    provider: str
    path: str
    sent: Any
    everything: Any
    rich: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    extra: tuple[str, ...] = ("embed", "dimensions")

    @asynccontextmanager
    async def opened(self, server: EmbeddingServer) -> AsyncIterator[LlmService]:
        table = {"base_url": server.url + self.path, "extra_features": list(self.extra), "tries": 1, **self.options}
        async with aclosing(await open_provider(self.provider, MODEL, table)) as service:
            yield service


DIMENSIONS = {"dimensions": 64}
OPENAI = OpenAiBody(MODEL, TEXTS, "float"), OpenAiBody(MODEL, TEXTS, "float", 64)
WIRES = (
    Wire("openai", "/v1", *OPENAI, DIMENSIONS),
    Wire("openai-compatible", "/v1", *OPENAI, DIMENSIONS),
    Wire("vllm", "/v1", *OPENAI, DIMENSIONS),
    Wire("mistral", "/mistral", MistralBody(MODEL, TEXTS), MistralBody(MODEL, TEXTS, 64), DIMENSIONS),
    Wire(
        "cohere",
        "",
        CohereBody(MODEL, TEXTS, "search_document", ("float",), "NONE"),
        CohereBody(MODEL, TEXTS, "search_query", ("float",), "END", 64),
        {"dimensions": 64, "purpose": "query", "truncate": True},
        extra=("embed", "dimensions", "truncate"),
    ),
    Wire(
        "ollama",
        "",
        OllamaBody(MODEL, TEXTS, truncate=False, keep_alive="1m", options={"num_ctx": 512}),
        OllamaBody(MODEL, TEXTS, truncate=True, dimensions=64, keep_alive="1m", options={"num_ctx": 512}),
        {"dimensions": 64, "truncate": True},
        {"keep_alive": "1m", "num_ctx": 512},
        extra=("dimensions",),
    ),
    Wire(
        "google-ai-studio",
        "",
        gemini(*TEXTS),
        gemini(*TEXTS, task="RETRIEVAL_QUERY", size=64),
        {"dimensions": 64, "purpose": "query"},
    ),
)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "MISTRAL_API_KEY", "COHERE_API_KEY", "GOOGLE_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.setenv(name, "secret")
    for name in ("OPENAI_COMPATIBLE_API_KEY", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)


async def embedded(service: LlmService, texts: tuple[str, ...] = TEXTS, **fields: Any) -> TextCompletionResponse:
    request = TextCompletionRequest(operation="embed", texts=texts, **fields)
    (answer,) = TextCompletionResponse.join([record async for record in service.on_request(request)])
    return answer


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.provider)
async def test_vectors_come_through_the_sdk(wire: Wire) -> None:
    async with EmbeddingServer.running() as server, wire.opened(server) as service:
        answer = await embedded(service)
        assert answer.vectors == ((3.0, 0.0), (5.0, 1.0), (1.0, 2.0))
        assert answer.in_token == (None if wire.provider == "google-ai-studio" else 3)
        assert answer.model == MODEL
        needs_key = wire.provider not in {"openai-compatible", "vllm"}
        assert (server.authorization or "").removeprefix("Bearer ") == ("secret" if needs_key else "")
        await embedded(service, **wire.rich)
        assert server.bodies == [wire.sent, wire.everything]
        many = await embedded(service, tuple("a" * number for number in range(1, 71)))
        assert [vector[0] for vector in many.vectors] == list(range(1, 71)), "in the order of the texts"
        assert len(server.bodies) == 2 + 3, "32 texts at a time"
        server.lost = 1
        with pytest.raises(ProtocolError, match="one vector for each text"):
            await embedded(service)


async def test_vectors_are_recorded_as_used() -> None:
    async with EmbeddingServer.running() as server, WIRES[0].opened(server) as service:
        records = record_here()
        await embedded(service)
        server.lost = 1
        with pytest.raises(ProtocolError):
            await embedded(service)
        account = ACCOUNT.get()
        assert account is not None
        # Only now it is clear that no retry follows.
        account.close()
    complete, failed = records
    assert (complete.operation, complete.provider, complete.model) == ("embed", "openai", MODEL)
    assert (complete.usage, complete.estimated, complete.outcome) == (Usage(3), False, "complete")
    assert (failed.usage, failed.outcome, failed.error, failed.call) == (Usage(), "failed", "protocol", 2)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.provider)
async def test_a_call_is_a_span_whose_id_the_server_gets(wire: Wire) -> None:
    ended: list[EndedSpan] = []
    record_spans(ended.append)
    try:
        trace.enter(Span.at_door("r-1", None))
        async with EmbeddingServer.running() as server, wire.opened(server) as service:
            await embedded(service)
            server.lost = 1
            with pytest.raises(ProtocolError):
                await embedded(service)
    finally:
        record_spans(None)
    assert [(each.name, each.error) for each in ended] == [(f"embeddings {MODEL}", error) for error in ("", "protocol")]
    assert server.traceparent == ended[-1].span.traceparent
    assert ended[-1].attributes[span_names.PROVIDER] == wire.provider


async def test_openai_takes_token_ids() -> None:
    wire = Wire("openai", "/v1", None, None, {}, extra=("embed", "embed_ids"))
    async with EmbeddingServer.running() as server, wire.opened(server) as service:
        answer = await embedded(service, (), id_lists=((1, 2), (3,)))
        assert answer.vectors == ((2.0, 0.0), (1.0, 1.0))
        assert server.bodies == [OpenAiBody(MODEL, ((1, 2), (3,)), "float")]


async def test_a_model_that_gives_no_vectors_says_so() -> None:
    for extra in ((), ("embed",)):
        wire = Wire("openai", "/elsewhere", None, None, {}, extra=extra)
        async with EmbeddingServer.running() as server, wire.opened(server) as service:
            kind, message = (NotFound, "model") if extra else (BadRequest, "can't do this: embed;")
            with pytest.raises(kind, match=message):
                await embedded(service)
            assert server.bodies == []


@pytest.mark.parametrize(
    ("provider", "asked", "message"),
    [
        ("openai", ["images"], "has images; possible are: dimensions, embed, embed_ids"),
        ("tgi", ["embed"], "possible are: none"),
        ("anthropic", ["embed"], "possible are: none"),
    ],
)
def test_a_feature_that_no_model_of_the_provider_has_is_refused(provider: str, asked: list[str], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        native_features(provider, {"extra_features": asked})


def test_what_the_options_add_is_announced() -> None:
    assert "embed" not in native_features("openai", {})
    assert {"embed", "dimensions"} <= native_features("openai", {"extra_features": ["embed", "dimensions"]})
    assert "embed" in native_features("ollama", {})
