"""Models on Google's Vertex AI: Gemini and Claude. Its SDKs stay in this distribution."""
