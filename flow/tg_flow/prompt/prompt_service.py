"""PromptRequest -> rendered template -> text completion -> PromptResponses."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from time import thread_time
from typing import Any, Literal

import msgspec
from typing_extensions import override

from tg_base.client import Client
from tg_base.llm import ObjectSchema
from tg_base.runtime import WorkerPool
from tg_base.server import Service
from tg_flow.prompt.answer import json_lines, json_object
from tg_flow.prompt.prompt_template import PromptTemplate, Rendered
from tg_flow.prompt.rendering import Rendering
from tg_flow.prompt.templates import Templates
from tg_schema import PROMPT, FinishReason, PromptRequest, PromptResponse, TextCompletionRequest, TextCompletionResponse
from tg_schema.codec import decode_json
from tg_schema.errors import BadRequest


def variables_of(terms: Mapping[str, str] | None) -> dict[str, Any]:
    """The values.

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
"""Seconds of the model's silence. The requestor gives up earlier, and that stops the model."""

_Read = Callable[[str, ObjectSchema | None, FinishReason | None, WorkerPool], Awaitable[str]]
_READERS: dict[Literal["json", "jsonl"], _Read] = {"json": json_object, "jsonl": json_lines}


class PromptService(Service[PromptRequest, PromptResponse]):
    """The prompts of one flow. A text template streams; an object comes whole, in one response.

    Args:
        llm: the client of the text completion that answers.
        templates: its templates.
        time: the clock for the time limit of a render, in seconds.

    Attributes:
        templates: as given; replaced as a whole when they are edited, and used from the next request on.
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
                    # Records of thinking alone are no part of a prompt's answer.
                    if answer.response or answer.last:
                        yield _convert(answer)


def _completion(template: PromptTemplate, rendered: Rendered) -> TextCompletionRequest:
    """The request for a whole answer.

    JSON mode is not requested: it only gives objects, and a template may expect any value.
    """
    return TextCompletionRequest(
        system=rendered.system,
        prompt=rendered.prompt,
        # A list of lines is not JSON text.
        schema=template.schema if template.response_type == "json" else None,
    )


def _convert(answer: TextCompletionResponse, found: str | None = None) -> PromptResponse:
    """The response with the answer's text, or with the object that was found in a whole answer."""
    return PromptResponse(
        text=answer.response or "" if found is None else None,
        object=found,
        end_of_stream=answer.end_of_stream or found is not None,
        in_token=answer.in_token,
        out_token=answer.out_token,
        model=answer.model,
        finish_reason=answer.finish_reason,
    )
