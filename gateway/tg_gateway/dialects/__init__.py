"""Protocol's JSON <-> records: one file a protocol, pure functions of values."""

from tg_gateway.dialects.dialect import Dialect
from tg_gateway.dialects.native import DIALECTS, refusal

__all__ = [
    "DIALECTS",
    "Dialect",
    "refusal",
]
