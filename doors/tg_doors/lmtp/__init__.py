"""LMTP, the Language Model Transport Protocol of LMQL: token streams side by side on one WebSocket."""

from tg_doors.lmtp.dialect import MOUNTS

__all__ = ["MOUNTS"]
