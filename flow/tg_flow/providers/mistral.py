"""TextCompletionRequest -> Mistral's own API, by its SDK -> LlmChunks."""

from typing import Any, ClassVar, Literal

from typing_extensions import override

from tg_base.llm_service import ProviderOptions
from tg_flow.providers.mistral_wire import Answer, refusal, to_wire
from tg_flow.providers.openai_wire import model_list
from tg_flow.providers.sdk_provider import SdkOptions, SdkProvider, SdkWire
from tg_schema import FEATURES, TextCompletionRequest
from tg_schema.features import Feature


class MistralOptions(SdkOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of Mistral.

    Attributes:
        key_variable: the environment variable that holds the key; "" for a server that needs none. Where
            `MISTRAL_API_KEY` is not set, the predecessor's `MISTRAL_TOKEN` is taken.
        reasoning_effort: for models whose thinking can be chosen so.
        prompt_mode: "reasoning" lets a reasoning model think before it answers; the thinking's text is told apart.
    """

    key_variable: str = "MISTRAL_API_KEY"
    reasoning_effort: Literal["none", "high"] | None = None
    prompt_mode: Literal["reasoning"] | None = None


class Mistral(SdkProvider[MistralOptions]):
    """Mistral's chat completions."""

    Options: ClassVar[type[ProviderOptions]] = MistralOptions
    features: frozenset[Feature] = FEATURES - {"logprobs"}
    wire = SdkWire(
        connection="tg_flow.providers.mistral_connection",
        decoder=Answer,
        listed=model_list,
        refusal=refusal,
        older_key_variables=("MISTRAL_TOKEN",),
    )

    @override
    def body(self, request: TextCompletionRequest) -> dict[str, Any]:
        body = to_wire(request, self.upstream_model, self.sampling(request))
        if self.options.reasoning_effort is not None:
            body["reasoning_effort"] = self.options.reasoning_effort
        if self.options.prompt_mode is not None:
            body["prompt_mode"] = self.options.prompt_mode
        return body
