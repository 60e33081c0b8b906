"""TextCompletionRequest -> validation of its answer: JSON, and the request's schema.

Providers promise structured outputs, but not all of them keep the promise. No client gets an answer as valid that
breaks its schema.
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
    """The format required of one answer; made by `of`."""

    def __init__(self, schema: ObjectSchema | None) -> None:
        self._schema = schema

    @classmethod
    async def of(cls, request: TextCompletionRequest) -> "AnswerForm | None":
        """The format that a request asks for; None = any text.

        Raises:
            BadRequest: `schema` is not a JSON schema, or refers to another document.
        """
        if request.schema is None:
            return cls(None) if request.response_format == "json" else None
        try:
            # In a thread: compiling a large schema would block the loop, and with it all other streams.
            return cls(await asyncio.to_thread(_compile, msgspec.json.encode(request.schema)))
        except BadSchema as bad:
            raise BadRequest(f"schema: {bad.message}") from None
        except (RecursionError, UnicodeEncodeError):
            raise BadRequest("schema: it is nested too deep, or has a text that is not Unicode") from None

    async def check_answer(self, text: str) -> str:
        """The JSON of a finished answer: its text, or the inside of its code fence.

        Raises:
            SchemaViolation: it contains no JSON, or breaks the schema; the message names the rule.
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
    """The inside of the first code fence if the answer has one outside of JSON, otherwise the whole answer."""
    text = text.strip()
    start = text.find(_FENCE)
    # A fence within a JSON value is part of a string, for instance Markdown that the client asked for.
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
