"""ToolCall -> the arguments as values, for wires that carry them so."""

from typing import Any

import msgspec

from tg_schema.errors import BadRequest


def call_arguments(text: str) -> dict[str, Any]:
    """A call's arguments, from the JSON text that the model wrote.

    Raises:
        BadRequest: they are not a JSON object.
    """
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadRequest("messages: the arguments of a tool call must be the text of a JSON object") from None
