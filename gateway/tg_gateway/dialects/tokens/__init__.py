"""vLLM's API of token ids: text to ids, and back."""

from tg_gateway.dialects.tokens.mounts import TOKENS_MOUNTS

__all__ = ["TOKENS_MOUNTS"]
