"""vLLM's API of token ids: text to ids, and back."""

from tg_gateway.dialects.tokens.dialect import MOUNTS, TOKENS

__all__ = ["MOUNTS", "TOKENS"]
