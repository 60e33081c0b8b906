"""Anthropic's Messages: Anthropic's own API."""

from tests.fakes.anthropic_server import AnthropicServer
from tests.provider_matrix.case import Case

CASES = (
    Case(
        "anthropic",
        AnthropicServer.running,
        options=lambda url: {"base_url": url},
        environment=lambda url: {"ANTHROPIC_API_KEY": AnthropicServer.key},
    ),
)
