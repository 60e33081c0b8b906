"""The record's fields -> Ollama's, for errors that only a processor can find."""

from types import MappingProxyType
from typing import Final

from tg_gateway.dialects import FieldNames

OLLAMA_FIELDS: Final = FieldNames(
    MappingProxyType(
        {
            "max_tokens": "options.num_predict",
            "repetition_penalty": "options.repeat_penalty",
            "logprobs": "top_logprobs",
            "schema": "format",
            "reasoning": "think",
            "messages": "messages",
            "tools": "tools",
            "prompt": "prompt",
            "suffix": "suffix",
        }
    ),
    prefix="options.",
)
