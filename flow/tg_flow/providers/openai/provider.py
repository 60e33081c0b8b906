"""TextCompletionRequest -> any server with OpenAI's chat completions API -> LlmChunks."""

from typing import Annotated, Any, Generic, Literal

import msgspec
from typing_extensions import TypeVar, override

from tg_base.llm import (
    Endpoint,
    EventDecoder,
    KeyedConnection,
    RemoteOptions,
    SdkConnection,
    SdkProvider,
    SdkWire,
    embedding_list,
    set_fields,
)
from tg_base.telemetry import trace
from tg_flow.providers.openai.request import (
    DIALECT,
    OWN_FIELDS,
    ContinuationField,
    ThinkingField,
    continue_chat,
    to_wire,
)
from tg_flow.providers.openai.stream import StreamDecoder, error_detail, model_list, reasoning_error_detail
from tg_schema import COMMON_FEATURES, TextCompletionRequest, encode
from tg_schema.errors import BadRequest
from tg_schema.features import CONTINUATION, Feature

OPENAI_FEATURES: frozenset[Feature] = frozenset(
    {"n", "logit_bias", "reasoning", "parallel_tool_calls", "allowed_tools", "strict_tools", "openai_fields"}
)
"""Features of OpenAI's API in addition to the common ones."""


class OpenAiOptions(RemoteOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of an OpenAI-compatible provider. A preset may have other defaults.

    Attributes:
        without: features that this server lacks. OpenAI itself has no `top_k`; many compatible servers have it.
        base_url: the API's URL, without `/chat/completions`.
        max_tokens_field: the provider's name for the limit of the answer; reasoning models accept only
            `max_completion_tokens`.
        strict_schema: enforce each schema while the model generates, even if the request does not ask for that.
            The schemas must then require all properties and allow no others.
        developer_role: whether the server has the role "developer"; if not, its texts become a part of the system text.
        thinking_field: the field in which the server wants earlier thinking back; "extra_content" for the signatures
            of Gemini. None = it wants none back.
        hint_fields: the server's names of the request's hints `user`, `cache_key` and `priority`. A hint without a name
            here is not sent.
        salt_field: the server's field for a text that keeps callers' prefix caches apart, for instance vLLM's
            "cache_salt"; "" = all keys of the gateway share the server's cache.
        continuation_field: how the server takes the beginning of an answer, if the model has the feature
            "continuation": by `prefix` in the last message, or by `continue_final_message` in the body.
        extra_body: further fields of each request, for instance `{ reasoning_effort = "low" }`.
        usage_patience: seconds to wait for the usage of a finished answer; without it the answer is still complete.
    """

    without: frozenset[Feature] = frozenset({"top_k"})
    base_url_variables: tuple[str, ...] = ("OPENAI_BASE_URL",)
    base_url_path: str = "/v1"
    default_base_url: str | None = "https://api.openai.com/v1"
    key_variables: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("OPENAI_API_KEY", "OPENAI_TOKEN")
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    strict_schema: bool = False
    developer_role: bool = False
    thinking_field: ThinkingField | None = None
    hint_fields: dict[Literal["user", "cache_key", "priority"], str] = msgspec.field(default_factory=dict)
    salt_field: str = ""
    continuation_field: ContinuationField = "continue_final_message"
    extra_body: dict[str, Any] = msgspec.field(default_factory=dict)
    usage_patience: Annotated[float, msgspec.Meta(ge=0.0)] = 5.0

    @override
    def endpoint(self, model: str) -> Endpoint:
        """As `RemoteOptions.endpoint`; also raises BadRequest if there is no URL."""
        endpoint = super().endpoint(model)
        if endpoint.base_url is None:
            where = " or ".join(self.base_url_variables)
            raise BadRequest(f"this provider needs the URL of its API: set base_url, or the variable {where}")
        return endpoint


AnyOptions = TypeVar("AnyOptions", bound=OpenAiOptions, default=OpenAiOptions)


class ChatCompletions(SdkProvider[AnyOptions], Generic[AnyOptions]):
    """The base of the providers with OpenAI's chat completions API: its format and its asynchronous SDK."""

    features: frozenset[Feature] = COMMON_FEATURES | OPENAI_FEATURES
    optional_features = frozenset({"embed", "embed_ids", "dimensions"})
    wire = SdkWire(
        client="tg_flow.providers.openai.client",
        listed=model_list,
        error_detail=error_detail,
        embedded=embedding_list,
    )

    def __init__(self, model: str, options: AnyOptions, connection: KeyedConnection[SdkConnection]) -> None:
        super().__init__(model, options, connection)
        self.usage_patience = options.usage_patience
        # A client may not set fields that the configuration sets, or the field that keeps prompt caches apart.
        ours = (*options.extra_body, *options.hint_fields.values(), options.salt_field)
        self._own_names = OWN_FIELDS.union(ours)

    def make_chat(self, request: TextCompletionRequest) -> dict[str, Any]:
        """The body of a chat request, without the fields that the configuration adds."""
        options = self.options
        chat = to_wire(
            request,
            self.upstream_model,
            options.sampling(request),
            completion_tokens=options.max_tokens_field == "max_completion_tokens",
            strict=options.strict_schema,
            developer=options.developer_role,
            thinking_field=options.thinking_field,
        )
        return continue_chat(chat, request, options.continuation_field) if request.continuation else chat

    @override
    def body(self, request: TextCompletionRequest) -> bytes:
        return encode(self.fields(request))

    def fields(self, request: TextCompletionRequest) -> dict[str, Any]:
        """The fields of a chat request's body. Raises as `body`."""
        more = self.options.extra_body | self._hints(request) | self._foreign_fields(request)
        return self.make_chat(request) | more

    @override
    def embedding_body(self, request: TextCompletionRequest) -> bytes:
        texts = request.texts or request.id_lists
        size = request.dimensions
        return encode(set_fields(model=self.upstream_model, input=texts, encoding_format="float", dimensions=size))

    def _hints(self, request: TextCompletionRequest) -> dict[str, Any]:
        named = {name: getattr(request, hint) for hint, name in self.options.hint_fields.items()}
        if (field := self.options.hint_fields.get("cache_key")) is not None:
            named[field] = trace.own_cache_key(request.cache_key)
        if self.options.salt_field:
            named[self.options.salt_field] = trace.find_caller()
        return {name: value for name, value in named.items() if value is not None}

    def _foreign_fields(self, request: TextCompletionRequest) -> dict[str, Any]:
        """The request's fields of OpenAI's API that our records do not have."""
        foreign = request.foreign
        if foreign is None or foreign.dialect != DIALECT:
            return {}
        return {name: value for name, value in foreign.fields.items() if name not in self._own_names}

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return StreamDecoder(self.options.thinking_field)


class OpenAiCompatible(ChatCompletions[OpenAiOptions]):
    """A provider with OpenAI's chat completions API."""

    optional_features = ChatCompletions.optional_features | {CONTINUATION}


class OpenAi(OpenAiCompatible):
    """OpenAI itself, or a service that offers the same models and API."""

    optional_features = ChatCompletions.optional_features
    wire = msgspec.structs.replace(ChatCompletions.wire, error_detail=reasoning_error_detail)
