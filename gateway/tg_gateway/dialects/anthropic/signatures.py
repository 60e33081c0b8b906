"""Signatures of our records <-> those in Anthropic's blocks of thinking, which every client sends back unchanged.

A signature of ours is "ORIGIN:value" (`tg_base.llm`), and is sent unchanged. A signature without a colon is Anthropic's
own (base64), from a conversation that began there.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

from tg_schema.conversation import ReasoningPart

_THINKING: Final = "anthropic:"
_REDACTED: Final = "anthropic-redacted:"
_CALL: Final = "tool-use:"
"""The prefix of a call's signature, for which Anthropic's block of a call has no field."""


def import_signature(signature: str | None) -> str | None:
    """The signature of a block of thinking that a client sent."""
    if not signature or ":" in signature:
        return signature or None
    return _THINKING + signature


def import_redacted(data: str) -> str:
    """The signature of a block of thinking that is encrypted as a whole."""
    return data if ":" in data else _REDACTED + data


def wrap_call_signature(call: str, signature: str) -> str:
    """The signature of an empty block of thinking, by which a call's signature travels to the client and back."""
    # Quoted: an id may have the colon that separates it from the signature.
    return f"{_CALL}{quote(call, safe='')}:{signature}"


def unwrap_call_signatures(parts: Iterable[object]) -> dict[str, str]:
    """The signatures of calls among a turn's thinking, by the call's id."""
    wrapped = [part.signature for part in parts if isinstance(part, ReasoningPart) and is_of_call(part)]
    split = [(signature or "").removeprefix(_CALL).partition(":") for signature in wrapped]
    return {unquote(call): signature for call, _, signature in split}


def is_of_call(part: ReasoningPart) -> bool:
    """Whether a block only carries a call's signature, and no thinking."""
    return (part.signature or "").startswith(_CALL)
