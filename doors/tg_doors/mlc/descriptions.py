"""MLC-LLM's operations -> the gateway's OpenAPI document: those of OpenAI's doors, with other refusals."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tg_doors.mlc.failures import Validation
from tg_doors.mlc.parsed_calls import ParsedChat
from tg_gateway.dialects import Description
from tg_gateway.dialects.chat import ChatCompletion
from tg_gateway.dialects.embeddings import EMBEDDINGS
from tg_gateway.dialects.openai import OpenAi


def _describe(theirs: Description) -> Description:
    """Chunks have MLC's own names in places, so events are not described; no model need be named."""
    required = tuple(name for name in theirs.required if name != "model")
    answer = ParsedChat if theirs.answer is ChatCompletion else theirs.answer
    return replace(theirs, group="MLC-LLM", failure=(str, Validation), required=required, event=None, answer=answer)


MLC_DESCRIPTIONS: Final[Mapping[str, Description]] = MappingProxyType(
    {
        operation: _describe(theirs)
        for operation, theirs in (*OpenAi.descriptions.items(), ("embed", EMBEDDINGS.descriptions["embed"]))
    }
)
