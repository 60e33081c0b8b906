"""PromptRequest -> rendered template -> text completion -> PromptResponses."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from time import thread_time
from typing import Any, Literal

import msgspec
from typing_extensions import override

from tg_base.client import Client
from tg_base.llm import ObjectSchema, strip_fence
from tg_base.runtime import WorkerPool
from tg_base.server import Service
from tg_flow.prompt.meter import Meter, TooMuchWork
from tg_flow.prompt.prompt_template import PromptTemplate, Rendered, Templates
from tg_schema import PROMPT, FinishReason, PromptRequest, PromptResponse, TextCompletionRequest, TextCompletionResponse
from tg_schema.codec import decode_json
from tg_schema.errors import BadRequest, SchemaViolation

QUICK_WORK, QUICK_SECONDS = 500_000, 0.005
MOST_WORK, MOST_SECONDS = 16_000_000, 0.4
"""The budget of a short and of a long rendering: characters written (an element counts 16), and seconds."""

MAX_CONCURRENT_RENDERINGS = 2
"""Long renderings that run concurrently; further ones wait."""


class Rendering:
    """Renders the templates of one service.

    Args:
        time: the clock that limits the time of a rendering, in seconds.
    """

    def __init__(self, time: Callable[[], float] = thread_time) -> None:
        self._time = time
        self._turns = asyncio.Semaphore(MAX_CONCURRENT_RENDERINGS)

    async def render(self, template: PromptTemplate, variables: Mapping[str, Any]) -> Rendered:
        """Render the texts for the model.

        Raises:
            BadRequest: the variables do not fit, or the template does too much work.
        """
        try:
            return template.render(variables, Meter(QUICK_WORK, QUICK_SECONDS, self._time))
        except TooMuchWork:
            async with self._turns:
                return await asyncio.to_thread(self._render_long, template, variables)

    def _render_long(self, template: PromptTemplate, variables: Mapping[str, Any]) -> Rendered:
        try:
            return template.render(variables, Meter(MOST_WORK, MOST_SECONDS, self._time))
        except TooMuchWork:
            raise BadRequest(
                f'template "{template.name}" does too much work with these variables: it may take {MOST_SECONDS:g} s'
            ) from None


async def json_object(
    text: str, schema: ObjectSchema | None, finish_reason: FinishReason | None, checkers: WorkerPool
) -> str:
    """The object of a json template, as compact JSON text.

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
    """The objects of a jsonl template, as the JSON text of a list. The model may also write them as one JSON list.

    Empty lines are skipped; every other line must be an object.

    Raises:
        SchemaViolation: a line is not a JSON object or violates the schema.
    """
    text = strip_fence(text)
    if text.startswith("["):
        values = _parse(text, "the model's answer", finish_reason)
        names = (f"element {number} of the model's answer" for number in range(1, len(values) + 1))
        found = list(zip(names, values, strict=True))
    else:
        # Do not use `splitlines`: a JSON string may contain U+2028 and other line breaks.
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


def variables_of(terms: Mapping[str, str] | None) -> dict[str, Any]:
    """The values of the variables, decoded.

    Raises:
        BadRequest: a term is not JSON; the message names it.
    """
    variables: dict[str, Any] = {}
    for name, term in (terms or {}).items():
        try:
            variables[name] = decode_json(term)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            raise BadRequest(
                f'the variable "{name[:100]}" is not JSON text; a term holds one value as JSON, for instance "\\"hi\\""'
            ) from None
    return variables


DEFAULT_DEADLINE_SECONDS = 1800.0
"""Timeout of the model's silence, in seconds. Usually the requestor gives up earlier, which stops the model too."""

_Read = Callable[[str, ObjectSchema | None, FinishReason | None, WorkerPool], Awaitable[str]]
_READERS: dict[Literal["json", "jsonl"], _Read] = {"json": json_object, "jsonl": json_lines}


class PromptService(Service[PromptRequest, PromptResponse]):
    """The prompts of one flow. A text is streamed; an object comes in one response.

    Args:
        llm: the client of the text completion that answers.
        templates: its templates.
        time: the clock that limits the time of a rendering, in seconds.

    Attributes:
        templates: the current templates. An edit replaces them as a whole, from the next request on.
    """

    spec = PROMPT

    def __init__(
        self,
        llm: Client[TextCompletionRequest, TextCompletionResponse],
        templates: Templates,
        *,
        time: Callable[[], float] = thread_time,
    ) -> None:
        self.templates = templates
        self._llm = llm
        self._rendering = Rendering(time)
        self._checkers = WorkerPool()

    @override
    async def aclose(self) -> None:
        await self._checkers.aclose()

    @override
    async def on_request(self, request: PromptRequest) -> AsyncGenerator[PromptResponse, None]:
        template = self.templates.get(request.id)
        rendered = await self._rendering.render(template, variables_of(request.terms))
        if template.response_type != "text":
            answer = await self._llm.call(_completion(template, rendered), timeout=DEFAULT_DEADLINE_SECONDS)
            read = _READERS[template.response_type]
            found = await read(answer.response or "", template.check_answer, answer.finish_reason, self._checkers)
            yield _convert(answer, found)
        elif not request.streaming:
            yield _convert(await self._llm.call(_completion(template, rendered), timeout=DEFAULT_DEADLINE_SECONDS))
        else:
            completion = TextCompletionRequest(system=rendered.system, prompt=rendered.prompt, streaming=True)
            async with self._llm.stream(completion, timeout=DEFAULT_DEADLINE_SECONDS) as answers:
                async for answer in answers:
                    # Records that only have thinking do not belong to a prompt's answer.
                    if answer.response or answer.last:
                        yield _convert(answer)


def _completion(template: PromptTemplate, rendered: Rendered) -> TextCompletionRequest:
    """The request for the model's answer.

    It does not use JSON mode, which only allows objects: a template may expect any JSON value.
    """
    return TextCompletionRequest(
        system=rendered.system,
        prompt=rendered.prompt,
        # A list of lines is not valid JSON text, so a schema cannot be enforced.
        schema=template.schema if template.response_type == "json" else None,
    )


def _convert(answer: TextCompletionResponse, found: str | None = None) -> PromptResponse:
    """The response with the answer's text; or, if `found` is given, with the object in the answer."""
    return PromptResponse(
        text=answer.response or "" if found is None else None,
        object=found,
        end_of_stream=answer.end_of_stream or found is not None,
        in_token=answer.in_token,
        out_token=answer.out_token,
        model=answer.model,
        finish_reason=answer.finish_reason,
    )
