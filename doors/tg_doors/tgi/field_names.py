"""The record's fields -> TGI's, for errors that only a processor can find."""

from types import MappingProxyType
from typing import Final

from tg_gateway.dialects import FieldNames

TGI_FIELDS: Final = FieldNames(
    MappingProxyType(
        {
            "max_tokens": "parameters.max_new_tokens",
            "logprobs": "parameters.top_n_tokens",
            "prompt_logprobs": "parameters.decoder_input_details",
            "schema": "parameters.grammar.value",
            "regex": "parameters.grammar.value",
            "adapter": "parameters.adapter_id",
            "echo": "parameters.return_full_text",
            "n": "parameters.best_of",
        }
    ),
    prefix="parameters.",
)
