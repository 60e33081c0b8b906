"""The record's fields -> those of the Responses API, for errors that only a processor can find."""

from types import MappingProxyType
from typing import Final

from tg_gateway.dialects import FieldNames

RESPONSES_FIELDS: Final = FieldNames(
    MappingProxyType(
        {
            "max_tokens": "max_output_tokens",
            "logprobs": "top_logprobs",
            "schema": "text.format.schema",
            "messages": "input",
            "reasoning": "reasoning.effort",
            "tools": "tools",
            "tool_choice": "tool_choice",
        }
    ),
)
