"""Gemini's REST API: Google AI Studio, and Vertex AI."""

from tests.fakes import google_account
from tests.fakes.gemini_server import GeminiServer, VertexGeminiServer
from tests.provider_matrix.case import TELLS, Case

CASES = (
    Case(
        "google-ai-studio",
        GeminiServer.running,
        options=lambda url: {"base_url": url},
        environment=lambda url: {"GOOGLE_API_KEY": GeminiServer.key},
        tells=TELLS - {"cache_write"},
    ),
    Case(
        "vertexai-gemini",
        VertexGeminiServer.running,
        options=lambda url: {"base_url": url},
        environment=google_account.environment,
        tells=TELLS - {"cache_write"},
    ),
)
