"""The record's fields -> OpenAI's and vLLM's, for errors that only a processor can find."""

from types import MappingProxyType
from typing import Final

from tg_gateway.dialects import FieldNames

_SHARED: Final = {
    "stop_ids": "stop_token_ids",
    "keep_stop": "include_stop_str_in_output",
    "schema": "response_format",
    "regex": "structured_outputs.regex",
    "choice": "structured_outputs.choice",
}
CHAT_FIELDS: Final = FieldNames(
    MappingProxyType(
        _SHARED
        | {
            "logprobs": "top_logprobs",
            "reasoning": "reasoning_effort",
            **{name: name for name in ("max_tokens", "messages", "tool_choice", "tools")},
        }
    )
)
COMPLETION_FIELDS: Final = FieldNames(MappingProxyType(_SHARED | {"echo": "echo", "suffix": "suffix"}))
