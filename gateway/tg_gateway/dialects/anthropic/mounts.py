"""Where Anthropic's clients find us."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.anthropic.dialect import ANTHROPIC

_VERSION: Final = "anthropic-version"
"""Anthropic's clients send it with every request; others that ask for the list of models do not."""

ANTHROPIC_MOUNTS: Final = (
    Mount("POST", "/v1/messages", ANTHROPIC, "message", large=True),
    Mount("POST", "/v1/messages/count_tokens", ANTHROPIC, "count", large=True),
    Mount("GET", "/v1/models", ANTHROPIC, "models", header=_VERSION),
    Mount("GET", "/v1/models/{model}", ANTHROPIC, "model", header=_VERSION),
    # Claude Code asks without a key whether anybody is there.
    Mount("HEAD", "/", ANTHROPIC, "probe", keyless=True),
)
