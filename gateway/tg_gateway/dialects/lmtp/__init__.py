"""LMTP, the Language Model Transport Protocol of LMQL: token streams side by side on one WebSocket."""

from tg_gateway.dialects.lmtp.mounts import LMTP_MOUNTS

__all__ = ["LMTP_MOUNTS"]
