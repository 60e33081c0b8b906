"""Model's text -> object: strips fences, parses strictly, checks against the template's schema."""

from typing import Any

import msgspec

from tg_base.llm import ObjectSchema, strip_fence
from tg_base.runtime import WorkerPool
from tg_schema import FinishReason
from tg_schema.codec import decode_json
from tg_schema.errors import SchemaViolation


async def json_object(
    text: str, schema: ObjectSchema | None, finish_reason: FinishReason | None, checkers: WorkerPool
) -> str:
    """The one object of a json template, as compact JSON text.

    Raises:
        SchemaViolation: the answer is not JSON or violates the schema.
    """
    what = "the model's answer"
    value = _parse(strip_fence(text), what, finish_reason)
    await _check(value, schema, what, checkers)
    return _encode(value)


async def json_lines(
    text: str, schema: ObjectSchema | None, finish_reason: FinishReason | None, checkers: WorkerPool
) -> str:
    """The objects of a jsonl template, as the JSON text of a list. A model may also write them as one list.

    Empty lines are skipped, and nothing else.

    Raises:
        SchemaViolation: a line is not a JSON object or violates the schema.
    """
    text = strip_fence(text)
    if text.startswith("["):
        values = _parse(text, "the model's answer", finish_reason)
        names = (f"element {number} of the model's answer" for number in range(1, len(values) + 1))
        found = list(zip(names, values, strict=True))
    else:
        # Not `splitlines`: JSON may have U+2028 and other line breaks within a string.
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        named = [(f"line {number} of the model's answer", line) for number, line in lines]
        found = [(what, _parse(line, what, finish_reason)) for what, line in named]
    for what, value in found:
        if not isinstance(value, dict):
            raise SchemaViolation(f"{what} is not a JSON object; ask again, or change the template")
        await _check(value, schema, what, checkers)
    return _encode([value for _, value in found])


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _parse(text: str, what: str, finish_reason: FinishReason | None) -> Any:
    try:
        return decode_json(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        cut = "; it was cut at the most tokens allowed" if finish_reason == "length" else ""
        raise SchemaViolation(f"{what} is not valid JSON{cut}; ask again, or change the template") from None


async def _check(value: Any, schema: ObjectSchema | None, what: str, checkers: WorkerPool) -> None:
    fault = await schema.fault(value, checkers) if schema is not None else None
    if fault is not None:
        raise SchemaViolation(f"{what} does not satisfy the template's schema: {fault}")
