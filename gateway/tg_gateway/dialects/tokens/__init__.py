"""vLLM's API of token ids: text to ids, and back."""

from tg_gateway.dialects.tokens.dialect import TOKENS
from tg_gateway.dialects.tokens.mounts import TOKENS_MOUNTS

__all__ = ["TOKENS", "TOKENS_MOUNTS"]
