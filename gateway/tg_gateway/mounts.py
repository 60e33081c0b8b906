"""The table of mounts: which protocol is where. A new protocol is a row here, and a file or folder in `dialects`."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.anthropic import ANTHROPIC_MOUNTS
from tg_gateway.dialects.embeddings import EMBEDDINGS_MOUNTS
from tg_gateway.dialects.native import NATIVE_MOUNTS
from tg_gateway.dialects.openai import OPENAI_MOUNTS
from tg_gateway.dialects.responses import RESPONSES_MOUNTS
from tg_gateway.dialects.tokens import TOKENS_MOUNTS

MOUNTS: Final[tuple[Mount, ...]] = (
    *NATIVE_MOUNTS,
    *OPENAI_MOUNTS,
    *EMBEDDINGS_MOUNTS,
    *TOKENS_MOUNTS,
    *RESPONSES_MOUNTS,
    *ANTHROPIC_MOUNTS,
)
"""The first row's dialect refuses what is near to nobody's path."""
