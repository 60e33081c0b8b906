"""TextCompletionRequest -> any server with OpenAI's chat completions API -> LlmChunks."""

from typing import Annotated, Any, Generic, Literal

import msgspec
from typing_extensions import TypeVar, override

from tg_base.llm import Endpoint, EventDecoder, KeyedConnection, RemoteOptions, SdkConnection, SdkProvider, SdkWire
from tg_flow.providers.openai.request import to_wire
from tg_flow.providers.openai.stream import StreamDecoder, error_detail, model_list
from tg_schema import FEATURES, TextCompletionRequest
from tg_schema.errors import BadRequest
from tg_schema.features import Feature

_encode = msgspec.json.Encoder().encode


class OpenAiOptions(RemoteOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of an OpenAI-compatible provider. Its row in the registry may have other defaults.

    Attributes:
        without: features that this server lacks; OpenAI itself has no `top_k`, many compatible servers have.
        base_url: the API's URL, without `/chat/completions`.
        max_tokens_field: the provider's name of the answer's limit; reasoning models accept `max_completion_tokens`
            only.
        strict_schema: enforce the request's schema while the model generates. The schema must then require all
            properties and allow no others.
        extra_body: further fields of each request, for instance `{ reasoning_effort = "low" }`.
        usage_patience: seconds to wait for the usage of a finished answer; without it the answer is still complete.
    """

    without: frozenset[Feature] = frozenset({"top_k"})
    base_url_variables: tuple[str, ...] = ("OPENAI_BASE_URL",)
    base_url_path: str = "/v1"
    default_base_url: str | None = "https://api.openai.com/v1"
    key_variables: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("OPENAI_API_KEY", "OPENAI_TOKEN")
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    strict_schema: bool = True
    extra_body: dict[str, Any] = msgspec.field(default_factory=dict)
    usage_patience: Annotated[float, msgspec.Meta(ge=0.0)] = 5.0

    @override
    def endpoint(self, model: str) -> Endpoint:
        """As `UrlOptions.endpoint`; also raises BadRequest if there is no URL."""
        endpoint = super().endpoint(model)
        if endpoint.base_url is None:
            where = " or ".join(self.base_url_variables)
            raise BadRequest(f"this provider needs the URL of its API: set base_url, or the variable {where}")
        return endpoint


AnyOptions = TypeVar("AnyOptions", bound=OpenAiOptions, default=OpenAiOptions)


class ChatCompletions(SdkProvider[AnyOptions], Generic[AnyOptions]):
    """The base of the providers with OpenAI's chat completions API: its format and its asynchronous SDK."""

    features: frozenset[Feature] = FEATURES
    wire = SdkWire(client="tg_flow.providers.openai.client", listed=model_list, error_detail=error_detail)

    def __init__(self, model: str, options: AnyOptions, connection: KeyedConnection[SdkConnection]) -> None:
        super().__init__(model, options, connection)
        self.usage_patience = options.usage_patience
        self._extra = _members(options.extra_body)

    @override
    def body(self, request: TextCompletionRequest) -> bytes:
        options = self.options
        asked = to_wire(
            request,
            self.upstream_model,
            options.sampling(request),
            completion_tokens=options.max_tokens_field == "max_completion_tokens",
            strict=options.strict_schema,
        )
        # The extra fields are encoded once: they are appended to the body's JSON instead of merged as a dict.
        body = _encode(asked)
        return body[:-1] + self._extra if self._extra else body

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return StreamDecoder()


class OpenAiCompatible(ChatCompletions[OpenAiOptions]):
    """A provider with OpenAI's chat completions API: OpenAI itself, and many others."""


def _members(extra: dict[str, Any]) -> bytes:
    """The end of a JSON object whose last members are these; b"" if there are none."""
    return b"," + _encode(extra)[1:] if extra else b""
