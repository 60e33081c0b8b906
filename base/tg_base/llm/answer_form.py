"""TextCompletionRequest -> the form that its answer must have: JSON, and the request's schema.

Providers hold models to a schema, and some of them break their word; nobody is told that an answer fits which does not.
"""

import asyncio
from functools import lru_cache
from typing import Any

import msgspec

from tg_base.llm.object_schema import BadSchema, ObjectSchema
from tg_schema import TextCompletionRequest
from tg_schema.errors import BadRequest, SchemaViolation

_FENCE = "```"
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeError)


class AnswerForm:
    """What to hold one answer to; made by `of`."""

    def __init__(self, schema: ObjectSchema | None) -> None:
        self._schema = schema

    @classmethod
    async def of(cls, request: TextCompletionRequest) -> "AnswerForm | None":
        """None where any text will do.

        Raises:
            BadRequest: `schema` is not a JSON schema, or refers to another document.
        """
        if request.schema is None:
            return cls(None) if request.response_format == "json" else None
        try:
            return cls(await asyncio.to_thread(_compile, msgspec.json.encode(request.schema)))
        except BadSchema as bad:
            raise BadRequest(f"schema: {bad.message}") from None
        except (RecursionError, UnicodeEncodeError):
            raise BadRequest("schema: it is nested too deep, or has a text that is not Unicode") from None

    async def check_answer(self, text: str) -> str:
        """The JSON of a finished answer: its text, or what stands inside of a code fence.

        Raises:
            SchemaViolation: there is no JSON in it, or it breaks the schema; the message names the rule.
        """
        return await asyncio.to_thread(self._check_answer, text)

    def _check_answer(self, text: str) -> str:
        try:
            value = msgspec.json.decode(text)
        except _UNREADABLE:
            text, value = _inside(text)
        fault = self._schema.fault(value) if self._schema is not None else None
        if fault is not None:
            raise SchemaViolation(f"the model's answer does not satisfy the request's schema: {fault}; ask again")
        return text


def strip_fence(text: str) -> str:
    """The inside of the first code fence, where the answer has one outside of JSON; else all of it."""
    text = text.strip()
    start = text.find(_FENCE)
    if start < 0 or text[:1] in {"{", "["}:
        return text
    inside = text[start + len(_FENCE) :]
    body = inside.partition("\n")[2] if "\n" in inside else inside
    return body.partition(_FENCE)[0].strip()


def _inside(text: str) -> tuple[str, Any]:
    inside = strip_fence(text)
    try:
        return inside, msgspec.json.decode(inside)
    except _UNREADABLE:
        raise SchemaViolation("the model's answer is not valid JSON; ask again, or ask another model") from None


@lru_cache(maxsize=64)
def _compile(schema: bytes) -> ObjectSchema:
    return ObjectSchema(msgspec.json.decode(schema))
