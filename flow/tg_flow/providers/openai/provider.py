"""TextCompletionRequest -> any server that speaks OpenAI's chat completions -> LlmChunks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import msgspec
from typing_extensions import override

from tg_base.llm import KeyedConnection, LlmChunk, LlmService, ProviderOptions, RemoteOptions
from tg_base.llm.http import NO_FAILURES, event_chunks, open_body, read_whole_body
from tg_flow.providers.openai.endpoint import Endpoint
from tg_flow.providers.openai.request import to_wire
from tg_flow.providers.openai.stream import StreamDecoder, error_detail, model_list
from tg_schema import FEATURES, ModelInfo, Sampling, TextCompletionRequest
from tg_schema.errors import BadRequest, Internal
from tg_schema.features import Feature

if TYPE_CHECKING:
    from tg_flow.providers.openai.client import OpenAiConnection

LIST_TIMEOUT_SECONDS = 15.0
"""Seconds that a list of models may take."""

_encode = msgspec.json.Encoder().encode


class OpenAiOptions(RemoteOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of an OpenAI-compatible provider. Its row in the registry has other defaults.

    Attributes:
        without: what this server cannot do; OpenAI itself does not know `top_k`, many compatible servers do.
        base_url: where the API is, up to and without `/chat/completions`.
        upstream_model: the model's name at the provider; ours where absent.
        temperature: for requests that do not say.
        max_tokens: the bound on an answer's tokens, for requests that do not say.
        max_tokens_field: what the provider calls that bound; reasoning models take `max_completion_tokens` only.
        strict_schema: ask for answers that cannot break the request's schema; such a schema must name all properties as
            required and allow no others.
        extra_body: further fields of each request, for instance `{ reasoning_effort = "low" }`.
        usage_patience: seconds that a finished answer waits for its usage; without usage it is whole all the same.
    """

    without: frozenset[Feature] = frozenset({"top_k"})
    base_url_variables: tuple[str, ...] = ("OPENAI_BASE_URL",)
    base_url_path: str = "/v1"
    default_base_url: str | None = "https://api.openai.com/v1"
    key_variables: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("OPENAI_API_KEY", "OPENAI_TOKEN")
    upstream_model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    strict_schema: bool = True
    extra_body: dict[str, Any] = msgspec.field(default_factory=dict)
    usage_patience: Annotated[float, msgspec.Meta(ge=0.0)] = 5.0

    def endpoint(self, model: str) -> Endpoint:
        """Where to ask for `model`, by these options and the environment; without the key.

        Raises:
            BadRequest: there is no URL, or it is wrong.
        """
        url = self.url()
        if url is None:
            where = " or ".join(self.base_url_variables)
            raise BadRequest(f"this provider needs the URL of its API: set base_url, or the variable {where}")
        return Endpoint(url)


class OpenAiCompatible(LlmService):
    """A provider behind OpenAI's chat completions API, through OpenAI's asynchronous SDK."""

    Options: ClassVar[type[ProviderOptions]] = OpenAiOptions
    features = FEATURES

    def __init__(self, model: str, options: OpenAiOptions, connection: "KeyedConnection[OpenAiConnection]") -> None:
        super().__init__(model, options)
        self.upstream_model = options.upstream_model or model
        self._options = options
        self._defaults = Sampling(temperature=options.temperature, max_tokens=options.max_tokens)
        self._extra = _members(options.extra_body)
        self._connection = connection

    @classmethod
    @override
    async def open(cls, model: str, options: ProviderOptions) -> Self:
        if not isinstance(options, OpenAiOptions):
            raise Internal("this provider was opened with the options of another one")
        endpoint, key = options.endpoint(options.upstream_model or model), options.key()
        module = await asyncio.to_thread(import_module, "tg_flow.providers.openai.client")

        async def connect(key: str | None) -> "OpenAiConnection":
            connection: OpenAiConnection = await module.OpenAiConnection.open(replace(endpoint, key=key))
            return connection

        return cls(model, options, await KeyedConnection.open(key, connect))

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        async with self._connection.lend() as connection:
            return model_list(
                await read_whole_body(connection.models(), NO_FAILURES, error_detail, LIST_TIMEOUT_SECONDS)
            )

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        async with (
            self._connection.lend() as connection,
            open_body(connection.post(self._body(request)), NO_FAILURES, error_detail) as read,
            aclosing(event_chunks(read, StreamDecoder(), self._options.usage_patience)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    @override
    async def aclose(self) -> None:
        await self._connection.aclose()

    def _body(self, request: TextCompletionRequest) -> bytes:
        body = _encode(
            to_wire(
                request,
                self.upstream_model,
                defaults=self._defaults,
                completion_tokens=self._options.max_tokens_field == "max_completion_tokens",
                strict=self._options.strict_schema,
            )
        )
        return body[:-1] + self._extra if self._extra else body


def _members(extra: dict[str, Any]) -> bytes:
    """The end of a JSON object that has these members besides others; b"" where there are none."""
    return b"," + _encode(extra)[1:] if extra else b""
