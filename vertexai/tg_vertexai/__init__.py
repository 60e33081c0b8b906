"""Models on Google's Vertex AI: Gemini and Claude. The SDKs are imported when a provider is opened."""

from tg_vertexai.provider import VertexClaude, VertexGemini

__all__ = [
    "VertexClaude",
    "VertexGemini",
]
