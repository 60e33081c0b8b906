"""The record's fields -> LMI's, for errors that only a processor can find."""

from types import MappingProxyType
from typing import Final

from tg_gateway.dialects import FieldNames

LMI_FIELDS: Final = FieldNames(
    MappingProxyType(
        {
            "max_tokens": "parameters.max_new_tokens",
            "min_tokens": "parameters.min_length",
            "ignore_eos": "parameters.ignore_eos_token",
            "stop": "parameters.stop_sequences",
            "stop_ids": "parameters.stop_token_ids",
            "keep_stop": "parameters.include_stop_str_in_output",
            "echo": "parameters.return_full_text",
            "adapter": "adapters",
        }
    ),
    prefix="parameters.",
)
