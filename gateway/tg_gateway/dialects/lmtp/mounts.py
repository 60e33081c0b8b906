"""Where LMTP's clients find us."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.lmtp.dialect import LMTP

LMTP_MOUNTS: Final = (
    Mount("GET", "/lmtp", LMTP, "converse", socket=True, large=True),
    # LMQL's client opens its socket at the bare address; without a handshake that path is another protocol's. The
    # header tells it from an upgrade to HTTP/2, which some clients offer everywhere.
    Mount("GET", "/", LMTP, "converse", header="Sec-WebSocket-Key", socket=True, large=True),
)
