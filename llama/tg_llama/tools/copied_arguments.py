"""Tools of a request -> the same, restricted to words of the conversation: for a model that cannot spell."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tg_llama.grammar import ANNOTATIONS
from tg_schema import Message, Tool

MAX_WORDS = 300
"""Most words that a text may use; they are the last ones of the conversation."""

_WORD = re.compile(r"(?<!\w)\w{1,40}(?!\w)")
_FIRST, _BETWEEN, _LAST = r"[-(./@]{0,2}", r"[-+*/(). ,:'@]{1,5}", r"[)./]{0,2}"
"""Punctuation before, between and after words."""


def let_copy(tools: Sequence[Tool], turns: Iterable[Message]) -> tuple[Tool, ...]:
    """The tools, with a pattern for each argument that may be any text: words of `turns` with punctuation between them.

    If the conversation has no words, or an argument's schema says more than its type, nothing is changed there.
    """
    said = [word for turn in turns if turn.role != "assistant" for word in _WORD.findall(turn.text)]
    if not said:
        return tuple(tools)
    words = "|".join(list(dict.fromkeys(reversed(said)))[:MAX_WORDS])
    pattern = f"^{_FIRST}({words})({_BETWEEN}({words})){{0,7}}{_LAST}$"
    return tuple([msgspec.structs.replace(tool, parameters=_held(tool.parameters, pattern)) for tool in tools])


def _held(parameters: dict[str, Any], pattern: str) -> dict[str, Any]:
    properties = parameters.get("properties")
    if not isinstance(properties, dict):
        return parameters
    held = {name: schema | {"pattern": pattern} if _is_text(schema) else schema for name, schema in properties.items()}
    return parameters | {"properties": held}


def _is_text(schema: object) -> bool:
    """Whether a schema allows any text and nothing else."""
    return isinstance(schema, dict) and schema.get("type") == "string" and schema.keys() <= ANNOTATIONS | {"type"}
