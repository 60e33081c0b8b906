"""Gemini's REST API: Google AI Studio."""

from tests.fakes.gemini_server import GeminiServer
from tests.provider_matrix.case import Case

CASES = (
    Case(
        "google-ai-studio",
        GeminiServer.running,
        options=lambda url: {"base_url": url},
        environment=lambda url: {"GOOGLE_API_KEY": GeminiServer.key},
    ),
)
