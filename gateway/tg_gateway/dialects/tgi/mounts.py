"""Where TGI's clients find us: their base URL is the gateway's, without a path. `/health` is the gateway's own."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.tgi.dialect import TGI

TGI_MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/", TGI, "generate-compatible", large=True),
    Mount("POST", "/generate", TGI, "generate", large=True),
    Mount("POST", "/generate_stream", TGI, "stream", large=True),
    Mount("POST", "/chat_tokenize", TGI, "tokenize-chat", large=True),
    Mount("GET", "/info", TGI, "info"),
    # A client that checks whether the server is there has shown no key yet.
    Mount("GET", "/", TGI, "health", keyless=True),
)
