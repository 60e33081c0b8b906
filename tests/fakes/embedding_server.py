"""The embedding endpoints of several providers over a loopback socket, after their public references.

Requests are checked as strictly as the references describe them. A text's vector has its length and its place in the
call, so that a test sees which text it belongs to.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal, Self

import msgspec
from aiohttp import web

from tests.fakes.serve_routes import serve_routes
from tests.fakes.strict import Strict

Vector = list[float]


class OpenAiBody(Strict, frozen=True):
    model: str
    input: tuple[str | tuple[int, ...], ...]
    encoding_format: Literal["float"]
    dimensions: int | None = None


class MistralBody(Strict, frozen=True):
    model: str
    input: tuple[str, ...]
    output_dimension: int | None = None


class CohereBody(Strict, frozen=True):
    model: str
    texts: tuple[str, ...]
    input_type: Literal["search_document", "search_query"]
    embedding_types: tuple[Literal["float"], ...]
    truncate: Literal["NONE", "END"]
    output_dimension: int | None = None


class OllamaBody(Strict, frozen=True):
    model: str
    input: tuple[str, ...]
    truncate: bool
    dimensions: int | None = None
    keep_alive: str | None = None
    options: dict[str, int] = msgspec.field(default_factory=dict)


class GeminiPart(Strict, frozen=True):
    text: str


class GeminiContent(Strict, frozen=True):
    parts: tuple[GeminiPart, ...]


class GeminiRequest(Strict, frozen=True, rename="camel"):
    model: str
    content: GeminiContent
    task_type: str | None = None
    output_dimensionality: int | None = None


class GeminiBody(Strict, frozen=True):
    requests: tuple[GeminiRequest, ...]


class EmbeddingServer:
    """Attributes:
    url: "http://127.0.0.1:PORT".
    bodies: of all requests, checked.
    authorization: the last request's key.
    traceparent: the last request's.
    lost: how many vectors are left out of each answer.
    """

    model: ClassVar[str] = "fake-model"

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[Any] = []
        self.authorization: str | None = None
        self.traceparent: str | None = None
        self.lost = 0

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        """Serve on a free port of the loopback interface."""
        server = cls()
        routes = {
            "POST /v1/embeddings": server._openai,
            "POST /mistral/v1/embeddings": server._mistral,
            "POST /v2/embed": server._cohere,
            "POST /api/embed": server._ollama,
            f"POST /v1beta/models/{cls.model}:batchEmbedContents": server._gemini,
        }
        async with serve_routes(routes) as server.url:
            yield server

    async def _read(self, request: web.Request, kind: type[Any]) -> Any:
        headers = request.headers
        self.authorization = headers.get("authorization") or headers.get("x-goog-api-key")
        self.traceparent = headers.get("traceparent")
        try:
            body = msgspec.json.decode(await request.read(), type=kind)
        except msgspec.MsgspecError as error:
            raise web.HTTPBadRequest(text=json.dumps({"error": {"message": str(error)}})) from None
        self.bodies.append(body)
        return body

    def _vectors(self, texts: Sequence[Any]) -> list[Vector]:
        return [[float(len(text)), float(number)] for number, text in enumerate(texts)][self.lost :]

    async def _openai(self, request: web.Request) -> web.Response:
        body = await self._read(request, OpenAiBody)
        return self._list(body.input)

    async def _mistral(self, request: web.Request) -> web.Response:
        body = await self._read(request, MistralBody)
        return self._list(body.input)

    def _list(self, texts: Sequence[Any]) -> web.Response:
        vectors = self._vectors(texts)
        data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        # Clients go by `index`, not by the order.
        return web.json_response({"object": "list", "data": data[::-1], "model": self.model, "usage": usage})

    async def _cohere(self, request: web.Request) -> web.Response:
        body = await self._read(request, CohereBody)
        return web.json_response(
            {
                "id": "1",
                "embeddings": {"float": self._vectors(body.texts)},
                "texts": body.texts,
                "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": len(body.texts)}},
                "response_type": "embeddings_by_type",
            }
        )

    async def _ollama(self, request: web.Request) -> web.Response:
        body = await self._read(request, OllamaBody)
        return web.json_response(
            {
                "model": self.model,
                "embeddings": self._vectors(body.input),
                "total_duration": 14143917,
                "load_duration": 1019500,
                "prompt_eval_count": len(body.input),
            }
        )

    async def _gemini(self, request: web.Request) -> web.Response:
        body = await self._read(request, GeminiBody)
        texts = [each.content.parts[0].text for each in body.requests]
        return web.json_response({"embeddings": [{"values": vector} for vector in self._vectors(texts)]})
