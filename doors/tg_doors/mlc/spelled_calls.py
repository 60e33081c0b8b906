"""Whole calls of tools -> the text in which MLC-LLM's clients read them from a stream: a list of calls in Python.

Source: the example of streamed function calls in MLC-LLM's REST API, whose text is `["f(a='b',c=1)"]`.
"""

from collections.abc import Sequence
from keyword import iskeyword
from typing import Any

from tg_schema import ToolCallDelta, decode, encode
from tg_schema.errors import BadRequest


def spell_calls(calls: Sequence[ToolCallDelta]) -> str:
    """A list of texts, each a call in Python with the arguments by name; JSON and Python read it alike."""
    return encode([_spell(call) for call in calls]).decode()


def _spell(call: ToolCallDelta) -> str:
    try:
        arguments: dict[str, Any] = decode(dict[str, Any], call.arguments) if call.arguments.strip() else {}
    except BadRequest:
        # Arguments that were cut off are no object: pass them on as the model wrote them.
        return f"{call.name}({call.arguments})"
    # Python takes its own words by name from nobody: a flight's "from" would be no call that it can read.
    if not all(name.isidentifier() and not iskeyword(name) for name in arguments):
        return f"{call.name}(**{arguments!r})"
    return f"{call.name}({','.join(f'{name}={value!r}' for name, value in arguments.items())})"
