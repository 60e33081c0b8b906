"""TextCompletionRequest -> Cohere's own API (Chat, version 2), by its SDK -> LlmChunks."""

from typing import Any, ClassVar

from typing_extensions import override

from tg_base.llm_service import ProviderOptions
from tg_flow.providers.cohere_answer import Answer, model_list
from tg_flow.providers.cohere_request import to_wire
from tg_flow.providers.sdk_provider import SdkOptions, SdkProvider, SdkWire
from tg_schema import FEATURES, TextCompletionRequest
from tg_schema.features import Feature


class CohereOptions(SdkOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of Cohere.

    Attributes:
        key_variable: the environment variable that holds the key; "" for a server that needs none. Where
            `COHERE_API_KEY` is not set, `CO_API_KEY` and the predecessor's `COHERE_KEY` are looked at.
        thinking: whether a reasoning model thinks before it answers, or how many tokens of that it may use; its own
            default where absent. The thinking's text is told apart.
    """

    key_variable: str = "COHERE_API_KEY"
    thinking: bool | int | None = None


class Cohere(SdkProvider[CohereOptions]):
    """Cohere's chat."""

    Options: ClassVar[type[ProviderOptions]] = CohereOptions
    features: frozenset[Feature] = FEATURES - {"logprobs"}
    wire = SdkWire(
        connection="tg_flow.providers.cohere_connection",
        decoder=Answer,
        listed=model_list,
        older_key_variables=("CO_API_KEY", "COHERE_KEY"),
    )

    @override
    def body(self, request: TextCompletionRequest) -> dict[str, Any]:
        return to_wire(request, self.upstream_model, self.sampling(request), thinking=self.options.thinking)
