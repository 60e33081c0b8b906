"""Models on Google's Vertex AI: Gemini and Claude. The SDKs are imported when a provider is opened."""

from tg_vertexai.claude import VertexClaude
from tg_vertexai.gemini import VertexGemini

__all__ = [
    "VertexClaude",
    "VertexGemini",
]
