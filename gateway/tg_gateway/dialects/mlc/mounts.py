"""Where MLC-LLM's clients find us: in place of its server's base URL they have `http://HOST:PORT/mlc/v1`."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.mlc.dialect import MLC

MLC_MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("GET", "/mlc/v1/models", MLC, "list-models"),
    Mount("GET", "/mlc/v1/models/{model}", MLC, "show-model"),
    Mount("POST", "/mlc/v1/chat/completions", MLC, "chat-completion", large=True),
    Mount("POST", "/mlc/v1/completions", MLC, "completion", large=True),
    Mount("POST", "/mlc/v1/embeddings", MLC, "embed", large=True),
)
