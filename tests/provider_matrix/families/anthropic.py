"""Anthropic's Messages: Anthropic's own API, and Claude on Vertex AI."""

from tests.fakes import google_account
from tests.fakes.anthropic_server import AnthropicServer, VertexClaudeServer
from tests.provider_matrix.case import TELLS, Case

CASES = (
    Case(
        "anthropic",
        AnthropicServer.running,
        options=lambda url: {"base_url": url},
        environment=lambda url: {"ANTHROPIC_API_KEY": AnthropicServer.key},
        thinking={"thinking": 2048},
    ),
    Case(
        "vertexai-claude",
        VertexClaudeServer.running,
        options=lambda url: {"base_url": url},
        environment=google_account.environment,
        tells=TELLS - {"models"},
        thinking={"thinking": 2048},
    ),
)
