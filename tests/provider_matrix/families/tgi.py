"""Hugging Face's text-generation-inference, by its Messages API."""

from tests.fakes.tgi_server import TgiServer
from tests.provider_matrix.case import TELLS, Case

CASES = (
    Case(
        "tgi",
        TgiServer.running,
        options=lambda url: {},
        environment=lambda url: {"TGI_BASE_URL": f"{url}/v1"},
        tells=TELLS
        - {"rounds", "cache_write", "cached", "reasoning", "reasoning_count", "parallel_calls", "retry_after"},
    ),
)
