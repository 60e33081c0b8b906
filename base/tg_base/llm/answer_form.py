"""TextCompletionRequest -> validation of its answers: JSON, the request's schema, and those of strict tools.

Providers promise structured outputs, but not all of them keep the promise. No client gets an answer as valid that
breaks its schema.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec

from tg_base.llm.core import LlmChunk
from tg_base.llm.object_schema import BadSchema, ObjectSchema
from tg_base.runtime import MAX_QUICK_BYTES, WorkerPool
from tg_schema import TextCompletionRequest, ToolCallDelta
from tg_schema.codec import decode_json
from tg_schema.conversation import whole_calls
from tg_schema.errors import BadRequest, SchemaViolation

_FENCE = "```"
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeError)


class AnswerForm:
    """The format required of each answer; made by `of`.

    Args:
        checkers: checks what may take long.
        json: whether the text must be JSON.
        schema: the schema of that JSON; None = it must be an object.
        tools: by name of a strict tool, the schema that the arguments of its calls must satisfy.
    """

    def __init__(
        self, checkers: WorkerPool, *, json: bool, schema: ObjectSchema | None, tools: Mapping[str, ObjectSchema]
    ) -> None:
        self._checkers = checkers
        self._json = json
        self._schema = schema
        self._tools = tools

    @classmethod
    async def of(cls, request: TextCompletionRequest, checkers: WorkerPool) -> "AnswerForm | None":
        """The format that a request asks for; None = any text and any calls.

        Raises:
            BadRequest: `schema`, or that of a strict tool, is not a JSON schema, refers to another document, or means
                too much work.
        """
        json = request.response_format == "json" or request.schema is not None
        strict = [tool for tool in request.tools if tool.strict]
        if not json and not strict:
            return None
        schema = None if request.schema is None else await _compiled("schema", request.schema, checkers)
        tools = {tool.name: await _compiled(f"tools: {tool.name}", tool.parameters, checkers) for tool in strict}
        return cls(checkers, json=json, schema=schema, tools=tools)

    async def check_answer(self, answer: Sequence[LlmChunk], *, streamed: bool) -> Sequence[LlmChunk]:
        """Check a finished answer.

        Args:
            answer: its pieces.
            streamed: whether the requestor has its text already.

        Returns:
            The same without text around its JSON, for instance a code fence.

        Raises:
            SchemaViolation: the answer contains no JSON, breaks the schema, or without a schema is not an object; a
                call breaks the schema of its tool; or a `streamed` answer has other text around its JSON. The message
                names the rule.
            BadRequest: checking the answer takes too much work.
        """
        calls = whole_calls(call for chunk in answer for call in chunk.tool_calls)
        for call in calls:
            await self._check_call(call)
        if calls or not self._json:
            return answer
        written = "".join(chunk.text for chunk in answer)
        text = await self._check_text(written)
        if text == written:
            return answer
        if streamed:
            raise SchemaViolation("the model's answer has other text around its JSON; ask again, or ask another model")
        *before, last = answer or (LlmChunk(),)
        return (
            *(msgspec.structs.replace(chunk, text="") for chunk in before),
            msgspec.structs.replace(last, text=text),
        )

    async def _check_text(self, text: str) -> str:
        """The JSON in a text: all of it, or the inside of its code fence."""
        text, value = _read(text) if len(text) <= MAX_QUICK_BYTES else await asyncio.to_thread(_read, text)
        if self._schema is None and not isinstance(value, dict):
            raise SchemaViolation("the model's answer is no JSON object; ask again, or send a schema of what it is")
        fault = await self._schema.fault(value, self._checkers) if self._schema is not None else None
        if fault is not None:
            raise SchemaViolation(f"the model's answer does not satisfy the request's schema: {fault}; ask again")
        return text

    async def _check_call(self, call: ToolCallDelta) -> None:
        schema = self._tools.get(call.name or "")
        if schema is None:
            return
        try:
            fault = await schema.fault(decode_json(call.arguments or "{}"), self._checkers)
        except _UNREADABLE:
            fault = "they are not valid JSON"
        if fault is not None:
            raise SchemaViolation(
                f"the arguments of the model's call of {call.name} do not satisfy the tool's schema: {fault}; ask again"
            )


async def _compiled(place: str, schema: dict[str, Any], checkers: WorkerPool) -> ObjectSchema:
    try:
        compiled = _compile(msgspec.json.encode(schema))
        await compiled.check(checkers)
    except BadSchema as bad:
        raise BadRequest(f"{place}: {bad.message}") from None
    except (RecursionError, UnicodeEncodeError):
        raise BadRequest(f"{place}: it is nested too deep, or has a text that is not Unicode") from None
    return compiled


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


def _read(text: str) -> tuple[str, Any]:
    """The JSON in a text, and its value."""
    with suppress(*_UNREADABLE):
        return text, decode_json(text)
    inside = strip_fence(text)
    try:
        return inside, decode_json(inside)
    except _UNREADABLE:
        raise SchemaViolation("the model's answer is not valid JSON; ask again, or ask another model") from None


@lru_cache(maxsize=64)
def _compile(schema: bytes) -> ObjectSchema:
    return ObjectSchema(decode_json(schema))
