"""The record's fields -> those of the Messages API, for errors that only a processor can find."""

from types import MappingProxyType
from typing import Final

from tg_gateway.dialects import FieldNames

MESSAGES_FIELDS: Final = FieldNames(
    MappingProxyType(
        {
            "stop": "stop_sequences",
            "max_tokens": "max_tokens",
            "schema": "output_config.format.schema",
            "reasoning": "thinking",
            "messages": "messages",
            "tools": "tools",
            "tool_choice": "tool_choice",
        }
    ),
)
