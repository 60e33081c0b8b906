"""TextCompletionRequest -> Gemini or Claude on Vertex AI -> LlmChunks."""

from typing import Any, Literal

from typing_extensions import override

from tg_base.llm import ANSWERS, RouteCall, SdkWire, anthropic, gemini
from tg_schema import TextCompletionRequest
from tg_vertexai.endpoint import VertexEndpoint

CLAUDE_VERSION = "vertex-2023-10-16"
"""The only version of the Messages API that Vertex AI has, by its reference."""


class VertexClaudeOptions(anthropic.ClaudeOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of Claude on Vertex AI; for the last three see `VertexEndpoint`.

    `schema_by` is "tool", because structured outputs of Claude are off by default in Google Cloud organizations.
    """

    base_url_variables: tuple[str, ...] = ("ANTHROPIC_VERTEX_BASE_URL",)
    schema_by: Literal["format", "tool"] = "tool"
    project: str | None = None
    location: str | None = None
    credentials_file: str | None = None

    @override
    def endpoint(self, model: str) -> VertexEndpoint:
        return VertexEndpoint(self.url(), model, None, self.project, self.location, self.credentials_file)


class VertexGeminiOptions(gemini.GeminiOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of Gemini on Vertex AI; for the last three see `VertexEndpoint`."""

    base_url_variables: tuple[str, ...] = ("GOOGLE_VERTEX_BASE_URL",)
    project: str | None = None
    location: str | None = None
    credentials_file: str | None = None

    @override
    def endpoint(self, model: str) -> VertexEndpoint:
        return VertexEndpoint(self.url(), model, None, self.project, self.location, self.credentials_file)


class VertexClaude(anthropic.Claude[VertexClaudeOptions]):
    """Claude on Vertex AI, by Anthropic's asynchronous SDK."""

    wire = SdkWire(client="tg_vertexai.claude_client", error_detail=anthropic.error_detail)

    @override
    def body(self, request: TextCompletionRequest) -> Any:
        fields = self.fields(request)
        # The URL names the model.
        del fields["model"]
        return self.call(ANSWERS, fields, request)

    @override
    def call(self, route: str, fields: dict[str, Any], request: TextCompletionRequest) -> RouteCall:
        # Vertex AI takes the version in the body, Anthropic's own API in a header.
        return super().call(route, {"anthropic_version": CLAUDE_VERSION, **fields}, request)


class VertexGemini(gemini.Gemini[VertexGeminiOptions]):
    """Gemini on Vertex AI, by Google's asynchronous SDK."""

    wire = SdkWire(client="tg_vertexai.gemini_client", listed=gemini.model_list, error_detail=gemini.error_detail)
