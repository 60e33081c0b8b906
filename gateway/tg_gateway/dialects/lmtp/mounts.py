"""Where LMTP's clients find us."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.lmtp.dialect import LMTP

LMTP_MOUNTS: Final = (
    Mount("GET", "/lmtp", LMTP, "converse", socket=True, large=True),
    # LMQL's client opens its socket at the bare address; without Upgrade that path is another protocol's.
    Mount("GET", "/", LMTP, "converse", header="Upgrade", socket=True, large=True),
)
