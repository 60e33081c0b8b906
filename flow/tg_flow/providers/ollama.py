"""TextCompletionRequest -> Ollama's own API (`/api/chat`) -> LlmChunks."""

from typing import Any, ClassVar, Literal

from msgspec import to_builtins
from typing_extensions import override

from tg_base.llm_service import ProviderOptions
from tg_base.wires.json_lines import JsonLines
from tg_flow.providers.ollama_wire import Answer, model_list, to_wire
from tg_flow.providers.sdk_provider import SdkOptions, SdkProvider, SdkWire
from tg_schema import FEATURES, TextCompletionRequest
from tg_schema.features import Feature


class OllamaOptions(SdkOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of Ollama.

    Attributes:
        base_url: where the server is; `OLLAMA_HOST`, or port 11434 of this machine, where absent.
        think: whether, or how much, the model shall think before it answers; its own default where absent.
        num_ctx: tokens of the context that the model is loaded with; the server's default where absent, which cuts
            longer prompts in silence.
        keep_alive: how long the model stays loaded after a request, for instance "10m"; the server's default where
            absent.
    """

    think: bool | Literal["low", "medium", "high"] | None = None
    num_ctx: int | None = None
    keep_alive: str | None = None


class Ollama(SdkProvider[OllamaOptions]):
    """A model of an Ollama server. A key (for ollama.com) is the SDK's affair, which takes it from `OLLAMA_API_KEY`."""

    Options: ClassVar[type[ProviderOptions]] = OllamaOptions
    features: frozenset[Feature] = FEATURES
    wire = SdkWire(
        connection="tg_flow.providers.ollama_connection",
        decoder=Answer,
        listed=model_list,
        frames=JsonLines,
    )

    @override
    def body(self, request: TextCompletionRequest) -> dict[str, Any]:
        options = self.options
        body: dict[str, Any] = to_builtins(
            to_wire(
                request,
                self.upstream_model,
                self.sampling(request),
                think=options.think,
                num_ctx=options.num_ctx,
                keep_alive=options.keep_alive,
            )
        )
        return body
