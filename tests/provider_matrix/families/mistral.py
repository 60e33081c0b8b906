"""Mistral's own API."""

from tests.fakes.mistral_server import MistralServer
from tests.provider_matrix.case import TELLS, Case

CASES = (
    Case(
        "mistral",
        MistralServer.running,
        options=lambda url: {"base_url": url},
        environment=lambda url: {"MISTRAL_API_KEY": MistralServer.key},
        tells=TELLS - {"cache_write", "reasoning_count"},
    ),
)
