"""Where token ids can be asked for."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.tokens.dialect import TOKENS

TOKENS_MOUNTS: Final[tuple[Mount, ...]] = (Mount("POST", "/detokenize", TOKENS, "detokenize", large=True),)
