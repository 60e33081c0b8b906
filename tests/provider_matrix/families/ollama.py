"""Ollama's own API."""

from tests.fakes.ollama_server import OllamaServer
from tests.provider_matrix.case import TELLS, Case

CASES = (
    Case(
        "ollama",
        OllamaServer.running,
        options=lambda url: {},
        environment=lambda url: {"OLLAMA_HOST": url},
        tells=TELLS - {"cache_write", "cached", "reasoning_count", "call_ids", "image_urls", "tool_choice"},
    ),
)
