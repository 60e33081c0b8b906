"""Cohere's own API."""

from tests.fakes.cohere_server import CohereServer
from tests.provider_matrix.case import TELLS, Case

CASES = (
    Case(
        "cohere",
        CohereServer.running,
        options=lambda url: {"base_url": url},
        environment=lambda url: {"COHERE_API_KEY": CohereServer.key},
        tells=TELLS - {"cache_write", "reasoning_count"},
    ),
)
