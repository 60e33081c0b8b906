"""TextCompletionRequest -> Google AI Studio -> LlmChunks."""

from typing import Any

import msgspec
from typing_extensions import override

from tg_base.llm import Key, SdkWire, choose_key, set_fields
from tg_base.llm.gemini import Gemini, GeminiOptions, error_detail, model_list, read_embeddings
from tg_schema import TextCompletionRequest

_TASKS = {"query": "RETRIEVAL_QUERY", "document": "RETRIEVAL_DOCUMENT"}


class GoogleAiStudioOptions(GeminiOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of Google AI Studio.

    Attributes:
        base_url_variables: the SDK's own variable.
        key_file: path of the file with the key, which is read for every request.
        key_variable: the environment variable with the key; "" for a server that needs none.
        key_variables: the variables that are searched if both are absent: the SDK's own two, TrustGraph's between them.
    """

    base_url_variables: tuple[str, ...] = ("GOOGLE_GEMINI_BASE_URL",)
    default_base_url: str | None = "https://generativelanguage.googleapis.com"
    key_file: str | None = None
    key_variable: str | None = None
    key_variables: tuple[str, ...] = ("GOOGLE_API_KEY", "GOOGLE_AI_STUDIO_KEY", "GEMINI_API_KEY")

    @override
    def key(self) -> Key:
        return choose_key(self.key_file, self.key_variable, self.key_variables)


class GoogleAiStudio(Gemini[GoogleAiStudioOptions]):
    """Gemini on Google AI Studio, by Google's asynchronous SDK."""

    optional_features = frozenset({"embed", "dimensions"})
    wire = SdkWire(
        client="tg_flow.providers.gemini.client",
        listed=model_list,
        error_detail=error_detail,
        embedded=read_embeddings,
    )

    @override
    def counted(self, wire: dict[str, Any]) -> dict[str, Any]:
        return {"generateContentRequest": {"model": self._place, **wire}}

    @override
    def embedding_body(self, request: TextCompletionRequest) -> bytes:
        task = _TASKS[request.purpose] if request.purpose else None
        common = set_fields(model=self._place, taskType=task, outputDimensionality=request.dimensions)
        texts = [{**common, "content": {"parts": [{"text": text}]}} for text in request.texts]
        return msgspec.json.encode({"requests": texts})

    @property
    def _place(self) -> str:
        name = self.upstream_model
        return name if "/" in name else f"models/{name}"
