"""A model's text -> the object in it: fences stripped, parsed strictly, checked against the template's schema."""

from typing import Any

import msgspec

from tg_flow.prompt.object_schema import ObjectSchema
from tg_schema.errors import ProtocolError

_FENCE = "```"


def json_object(text: str, schema: ObjectSchema | None, finish_reason: str | None) -> str:
    """The one object of a json template, as compact JSON text.

    Raises:
        ProtocolError: the answer is no JSON or breaks the schema.
    """
    return _encoded(_checked(_unfenced(text), schema, "the model's answer", finish_reason))


def json_lines(text: str, schema: ObjectSchema | None, finish_reason: str | None) -> str:
    """The objects of a jsonl template, as the JSON text of a list; empty lines are passed over.

    Raises:
        ProtocolError: a line is no JSON object or breaks the schema. None is left out in silence.
    """
    lines = [(number, line) for number, line in enumerate(_unfenced(text).splitlines(), 1) if line.strip()]
    values = []
    for number, line in lines:
        what = f"line {number} of the model's answer"
        value = _checked(line, schema, what, finish_reason)
        if not isinstance(value, dict):
            raise ProtocolError(f"{what} is not a JSON object; ask again, or change the template")
        values.append(value)
    return _encoded(values)


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _checked(text: str, schema: ObjectSchema | None, what: str, finish_reason: str | None) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        cut = "; it was cut at the most tokens allowed" if finish_reason == "length" else ""
        raise ProtocolError(f"{what} is not valid JSON{cut}; ask again, or change the template") from None
    fault = schema.fault(value) if schema is not None else None
    if fault is not None:
        raise ProtocolError(f"{what} does not satisfy the template's schema: {fault}")
    return value


def _unfenced(text: str) -> str:
    """The inside of the first code fence, where the answer has one outside of JSON; else all of it."""
    text = text.strip()
    start = text.find(_FENCE)
    if start < 0 or text[:1] in {"{", "["}:
        return text
    inside = text[start + len(_FENCE) :]
    body = inside.partition("\n")[2] if "\n" in inside else inside
    return body.partition(_FENCE)[0].strip()
