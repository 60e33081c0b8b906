"""Values of a request -> members of a provider's JSON body."""

from typing import Any

import msgspec

from tg_schema.codec import decode_json
from tg_schema.errors import BadRequest


def set_fields(**fields: Any) -> dict[str, Any]:
    """The fields that are set: neither None nor empty. 0 and False are values; an empty table is one, too."""
    return {name: value for name, value in fields.items() if value is not None and value not in ((), "")}


def call_arguments(text: str) -> dict[str, Any]:
    """Parse a call's arguments, the JSON text that the model generated.

    Raises:
        BadRequest: they are not a JSON object.
    """
    try:
        return decode_json(text or "{}", dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadRequest("messages: the arguments of a tool call must be the text of a JSON object") from None
