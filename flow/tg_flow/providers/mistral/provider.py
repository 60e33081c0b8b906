"""TextCompletionRequest -> Mistral's own API, by its SDK -> LlmChunks."""

from typing import Literal

from typing_extensions import override

from tg_base.llm import EventDecoder, RemoteOptions, SdkProvider, SdkWire, embedding_list, set_fields
from tg_flow.providers.mistral.request import to_wire
from tg_flow.providers.mistral.stream import StreamDecoder, error_detail
from tg_flow.providers.openai import model_list
from tg_schema import COMMON_FEATURES, TextCompletionRequest, encode
from tg_schema.features import Feature


class MistralOptions(RemoteOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of Mistral.

    Attributes:
        base_url_variables: our variable; the SDK has none.
        key_variables: the SDK's own variable, and TrustGraph's.
        reasoning_effort: the effort, for models with this field.
        prompt_mode: "reasoning" makes a reasoning model think before it answers; thinking text is returned as
            `reasoning`.
    """

    base_url_variables: tuple[str, ...] = ("MISTRAL_BASE_URL",)
    key_variables: tuple[str, ...] = ("MISTRAL_API_KEY", "MISTRAL_TOKEN")
    reasoning_effort: Literal["none", "high"] | None = None
    prompt_mode: Literal["reasoning"] | None = None


class Mistral(SdkProvider[MistralOptions]):
    """Mistral's chat completions."""

    features: frozenset[Feature] = (COMMON_FEATURES - {"logprobs"}) | {
        "reasoning",
        "parallel_tool_calls",
        "strict_tools",
        "min_tokens",
        "repetition_penalty",
    }
    optional_features = frozenset({"embed", "dimensions", "continuation"})
    wire = SdkWire(
        client="tg_flow.providers.mistral.client",
        listed=model_list,
        error_detail=error_detail,
        embedded=embedding_list,
    )

    @override
    def body(self, request: TextCompletionRequest) -> bytes:
        options = self.options
        effort = options.reasoning_effort if request.reasoning is None else None
        body = to_wire(request, self.upstream_model, options.sampling(request))
        return encode(body | set_fields(reasoning_effort=effort, prompt_mode=options.prompt_mode))

    @override
    def embedding_body(self, request: TextCompletionRequest) -> bytes:
        model = self.upstream_model
        return encode(set_fields(model=model, input=request.texts, output_dimension=request.dimensions))

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return StreamDecoder("".join(request.continuation))
