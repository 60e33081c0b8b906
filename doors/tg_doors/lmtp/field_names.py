"""The record's fields -> LMTP's, for errors that only a processor can find."""

from types import MappingProxyType
from typing import Final

from tg_gateway.dialects import FieldNames

LMTP_FIELDS: Final = FieldNames(
    MappingProxyType(
        {
            "logprobs": "top_logprobs",
            "scored": "scored",
        }
    ),
)
