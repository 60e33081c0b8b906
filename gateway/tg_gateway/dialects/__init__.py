"""Protocol's JSON <-> records: one file a protocol, pure functions of values."""

from tg_gateway.dialects.dialect import Dialect
from tg_gateway.dialects.native import DIALECTS, find_dialect, refusal

__all__ = [
    "DIALECTS",
    "Dialect",
    "find_dialect",
    "refusal",
]
