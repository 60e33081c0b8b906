"""TextCompletionRequest -> any server that speaks OpenAI's chat completions -> LlmChunks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import msgspec
from typing_extensions import override

from tg_base.credentials import key_from, key_if_set
from tg_base.llm_chunk import LlmChunk
from tg_base.llm_service import LlmService, ProviderOptions
from tg_base.wires.event_chunks import event_chunks
from tg_flow.providers.openai_endpoint import Endpoint, base_url_from
from tg_flow.providers.openai_request import to_wire
from tg_flow.providers.openai_wire import Answer, model_list
from tg_schema import FEATURES, ModelInfo, Sampling, TextCompletionRequest
from tg_schema.errors import Internal, ProtocolError
from tg_schema.features import Feature
from tg_schema.server_sent_events import ServerSentEvents

if TYPE_CHECKING:
    from tg_flow.providers.openai_connection import OpenAiConnection

LONGEST_EVENT = 1024 * 1024
"""Bytes of one event of a provider."""

_NO_STREAM = {"application/json", "text/html"}

_encode = msgspec.json.Encoder().encode


class OpenAiOptions(ProviderOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of an OpenAI-compatible provider. Its row in the registry has other defaults.

    Attributes:
        without: what this server cannot do; OpenAI itself does not know `top_k`, many compatible servers do.
        base_url: where the API is, up to and without `/chat/completions`; where absent, see the next three.
        base_url_variables: environment variables that may have the URL.
        base_url_path: what a URL of these variables gets that has no path.
        default_base_url: where no such variable is set; None = there is no default.
        key_variable: the environment variable that holds the key; "" for a server that needs none; where absent, see
            the next two.
        key_variables: environment variables that may have the key; the first that is set is taken.
        key_needed: whether one of them must be set.
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
    base_url: str | None = None
    base_url_variables: tuple[str, ...] = ("OPENAI_BASE_URL",)
    base_url_path: str = "/v1"
    default_base_url: str | None = "https://api.openai.com/v1"
    key_variable: str | None = None
    key_variables: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("OPENAI_API_KEY", "OPENAI_TOKEN")
    key_needed: bool = True
    upstream_model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    strict_schema: bool = True
    extra_body: dict[str, Any] = msgspec.field(default_factory=dict)
    usage_patience: Annotated[float, msgspec.Meta(ge=0.0)] = 5.0

    def endpoint(self, model: str) -> Endpoint:
        """Where to ask for `model`, by these options and the environment.

        Raises:
            BadRequest: there is no URL, or it is wrong.
            ProviderAuth: there is no key; the message names the variable.
        """
        url = base_url_from(self.base_url, self.base_url_variables, self.default_base_url, self.base_url_path)
        return Endpoint(url, self.key())

    def key(self) -> str | None:
        """The key by these options and the environment; None = without.

        Raises:
            ProviderAuth: there is none; the message names the variable.
        """
        if self.key_variable is not None:
            return key_from(self.key_variable)
        return key_from(*self.key_variables) if self.key_needed else key_if_set(*self.key_variables)


class OpenAiCompatible(LlmService):
    """A provider behind OpenAI's chat completions API, through OpenAI's asynchronous SDK."""

    Options: ClassVar[type[ProviderOptions]] = OpenAiOptions
    features = FEATURES

    def __init__(self, model: str, options: OpenAiOptions, connection: "OpenAiConnection") -> None:
        super().__init__(model, options)
        self._options = options
        self._defaults = Sampling(temperature=options.temperature, max_tokens=options.max_tokens)
        self._extra = _members(options.extra_body)
        self._connection = connection

    @classmethod
    @override
    async def open(cls, model: str, options: ProviderOptions) -> Self:
        if not isinstance(options, OpenAiOptions):
            raise Internal("this provider was opened with the options of another one")
        endpoint = options.endpoint(options.upstream_model or model)
        module = await asyncio.to_thread(import_module, "tg_flow.providers.openai_connection")
        connection: OpenAiConnection = await module.OpenAiConnection.open(endpoint)
        return cls(model, options, connection)

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        return model_list(await self._connection.get("/models"))

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        async with self._connection.post("/chat/completions", self._body(request)) as body:
            if body.content_type in _NO_STREAM:
                raise ProtocolError("the provider's answer is not a stream of events; check that base_url is an API's")
            frames = ServerSentEvents(LONGEST_EVENT)
            async with aclosing(event_chunks(body.read, Answer(), self._options.usage_patience, frames)) as chunks:
                async for chunk in chunks:
                    yield chunk

    @override
    async def aclose(self) -> None:
        await self._connection.aclose()

    def _body(self, request: TextCompletionRequest) -> bytes:
        body = _encode(
            to_wire(
                request,
                self._options.upstream_model or self.model,
                defaults=self._defaults,
                completion_tokens=self._options.max_tokens_field == "max_completion_tokens",
                strict=self._options.strict_schema,
            )
        )
        return body[:-1] + self._extra if self._extra else body


def _members(extra: dict[str, Any]) -> bytes:
    """The end of a JSON object that has these members besides others; b"" where there are none."""
    return b"," + _encode(extra)[1:] if extra else b""
