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
    what = "the model's answer"
    value = _parsed(_unfenced(text), what, finish_reason)
    _check(value, schema, what)
    return _encoded(value)


def json_lines(text: str, schema: ObjectSchema | None, finish_reason: str | None) -> str:
    """The objects of a jsonl template, as the JSON text of a list. A model may write them as one list as well.

    Empty lines are passed over; nothing else is left out.

    Raises:
        ProtocolError: a line is no JSON object or breaks the schema.
    """
    text = _unfenced(text)
    if text.startswith("["):
        values = _parsed(text, "the model's answer", finish_reason)
        names = (f"element {number} of the model's answer" for number in range(1, len(values) + 1))
        found = list(zip(names, values, strict=True))
    else:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        named = [(f"line {number} of the model's answer", line) for number, line in lines]
        found = [(what, _parsed(line, what, finish_reason)) for what, line in named]
    for what, value in found:
        if not isinstance(value, dict):
            raise ProtocolError(f"{what} is not a JSON object; ask again, or change the template")
        _check(value, schema, what)
    return _encoded([value for _, value in found])


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _parsed(text: str, what: str, finish_reason: str | None) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        cut = "; it was cut at the most tokens allowed" if finish_reason == "length" else ""
        raise ProtocolError(f"{what} is not valid JSON{cut}; ask again, or change the template") from None


def _check(value: Any, schema: ObjectSchema | None, what: str) -> None:
    fault = schema.fault(value) if schema is not None else None
    if fault is not None:
        raise ProtocolError(f"{what} does not satisfy the template's schema: {fault}")


def _unfenced(text: str) -> str:
    """The inside of the first code fence, where the answer has one outside of JSON; else all of it."""
    text = text.strip()
    start = text.find(_FENCE)
    if start < 0 or text[:1] in {"{", "["}:
        return text
    inside = text[start + len(_FENCE) :]
    body = inside.partition("\n")[2] if "\n" in inside else inside
    return body.partition(_FENCE)[0].strip()
