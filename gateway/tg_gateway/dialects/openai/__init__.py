"""OpenAI's protocol: models, chats and completions."""

from tg_gateway.dialects.openai.dialect import MOUNTS, OpenAi

__all__ = ["MOUNTS", "OpenAi"]
