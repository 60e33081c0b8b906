"""Records of one answer -> the events of its response, and the response at its end."""

import time
import uuid
from collections.abc import Iterator
from typing import Final, Literal, Self, assert_never

import msgspec

from tg_gateway.dialects import Output, Tally
from tg_gateway.dialects.responses.events import (
    Event,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
)
from tg_gateway.dialects.responses.long_fields import LongFields
from tg_gateway.dialects.responses.output_draft import OutputDraft, OutputForm
from tg_gateway.dialects.responses.request import ReadRequest
from tg_gateway.dialects.responses.request_body import (
    ENCRYPTED_REASONING,
    FLEX,
    TEXT_LOGPROBS,
    ReasoningBody,
    RequestBody,
    TextBody,
)
from tg_gateway.dialects.responses.response_object import (
    IncompleteDetails,
    JsonObjectFormat,
    JsonSchemaFormat,
    ResponseError,
    ResponseObject,
    TextConfig,
    TextFormat,
    make_usage,
)
from tg_schema import FinishReason, TextCompletionResponse, TgError, decode, encode
from tg_schema.errors import Cancelled, ContextLengthExceeded, RateLimited

RESPONSE_PREFIX: Final = "resp_"
"""How the id of every response begins."""
# OpenAI's defaults: a response has these fields even if its request did not.
_DEFAULT_TEMPERATURE: Final = 1.0
_DEFAULT_TOP_P: Final = 1.0
_LONG: Final = ("instructions", "metadata", "tool_choice", "tools")


class ResponseDraft:
    """One response while the model writes it.

    Args:
        response: the response as it was created, with placeholders for its long fields.
        form: how its items are sent.
        long_fields: the values of the placeholders.

    Attributes:
        form: as given.
        output: its items.
        response: the response as it was sent last, with placeholders for its long fields.
        long_fields: as given.
        ended_at: Unix time of its end, in seconds; None = the time at which the last event is made counts.
    """

    def __init__(self, response: ResponseObject, form: OutputForm, long_fields: LongFields) -> None:
        self.response, self.form, self.long_fields = response, form, long_fields
        self.output = OutputDraft(response.id.removeprefix(RESPONSE_PREFIX), form)
        self.ended_at: int | None = None
        self._tally = Tally()

    @classmethod
    def restore(cls, response: bytes, form: OutputForm) -> Self:
        """The draft again, from the JSON of the response as it was created."""
        found, long_fields = decode(ResponseObject, response), LongFields()
        marked = {name: long_fields.encode(getattr(found, name)) for name in _LONG}
        return cls(msgspec.structs.replace(found, **marked), form, long_fields)

    def encode(self) -> Output:
        """The JSON of the response as it was sent last."""
        return self.long_fields.fill(encode(self.response))

    def begin(self) -> Iterator[Event]:
        """The events before the first record."""
        yield ResponseCreated(self.response)
        yield (ResponseQueued if self.response.status == "queued" else ResponseInProgress)(self.response)

    def start(self) -> Iterator[Event]:
        """The event that says a model works on a response in the background; nothing the second time."""
        if self.response.status == "queued":
            self.response = msgspec.structs.replace(self.response, status="in_progress")
            yield ResponseInProgress(self.response)

    def add(self, record: TextCompletionResponse) -> Iterator[Event]:
        """The events of one more record. Raises as `OutputDraft.add`."""
        self._tally.add(record)
        if record.model and record.model != self.response.model:
            self.response = msgspec.structs.replace(self.response, model=record.model)
        return self.output.add(record)

    def end(self) -> Iterator[Event]:
        """The events after the last record."""
        cause = _find_cause(self._tally.finish_reason)
        status: Literal["completed", "incomplete"] = "completed" if cause is None else "incomplete"
        yield from self.output.finish(status)
        self._close(status=status, incomplete_details=cause)
        yield ResponseCompleted(self.response) if cause is None else ResponseIncomplete(self.response)

    def fail(self, error: TgError) -> Iterator[Event]:
        """The last event of an answer that failed."""
        self.close(error)
        yield ResponseFailed(self.response)

    def close(self, error: TgError, *, cancelled: bool = False) -> None:
        """End the response with its current content, because of an error; a cancelled response has no error."""
        if cancelled:
            self._close(status="cancelled", completed_at=None)
        else:
            self._close(status="failed", completed_at=None, error=ResponseError(find_code(error), error.message))

    def _close(self, **fields: object) -> None:
        total = self._tally.usage
        counted = total.in_token is not None or total.out_token is not None
        fields |= {"output": self.output.make_items(), "usage": make_usage(total) if counted else None}
        self.response = msgspec.structs.replace(self.response, **fields)
        if self.response.status == "completed":
            ended_at = int(time.time()) if self.ended_at is None else self.ended_at
            self.response = msgspec.structs.replace(self.response, completed_at=ended_at)


def make_draft(request: ReadRequest, model: str) -> ResponseDraft:
    """The draft of a new response.

    Args:
        request: the request.
        model: the name that it has until a record names the answering model.
    """
    body, long_fields = request.body, LongFields()
    form = OutputForm(
        summary=body.reasoning is not None and body.reasoning.summary is not None,
        encrypted=body.includes(ENCRYPTED_REASONING),
        logprobs=body.includes(TEXT_LOGPROBS) or bool(body.top_logprobs),
    )
    return ResponseDraft(_make_response(request, model, long_fields), form, long_fields)


def _make_response(request: ReadRequest, model: str, long_fields: LongFields) -> ResponseObject:
    body = request.body
    return ResponseObject(
        id=f"{RESPONSE_PREFIX}{uuid.uuid4().hex}",
        created_at=int(time.time()),
        status="queued" if body.background else "in_progress",
        background=bool(body.background),
        instructions=long_fields.encode(body.instructions),
        max_output_tokens=body.max_output_tokens,
        metadata=long_fields.encode(body.metadata or {}),
        model=model,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        prompt_cache_key=body.prompt_cache_key,
        reasoning=body.reasoning or ReasoningBody(),
        safety_identifier=body.safety_identifier,
        store=bool(body.store),
        service_tier=FLEX if body.flexible else "default",
        temperature=_DEFAULT_TEMPERATURE if body.temperature is None else body.temperature,
        text=_make_text(body, long_fields),
        tool_choice=long_fields.encode(body.tool_choice or "auto"),
        tools=long_fields.encode(request.functions),
        top_logprobs=body.top_logprobs or 0,
        top_p=_DEFAULT_TOP_P if body.top_p is None else body.top_p,
        presence_penalty=body.presence_penalty or 0,
        frequency_penalty=body.frequency_penalty or 0,
        user=msgspec.UNSET if body.user is None else body.user,
    )


def _make_text(body: RequestBody, long_fields: LongFields) -> TextConfig:
    text = body.text or TextBody()
    form = text.format
    if form is None or form.type == "text":
        return TextConfig(TextFormat(), text.verbosity)
    if form.type == "json_object":
        return TextConfig(JsonObjectFormat(), text.verbosity)
    schema = JsonSchemaFormat(form.name or "", form.description, long_fields.encode(form.schema), bool(form.strict))
    return TextConfig(schema, text.verbosity)


def find_code(error: TgError) -> str:
    """The API's code for an error; a client that reads `invalid_prompt` knows that a retry would fail again."""
    if isinstance(error, RateLimited):
        return "rate_limit_exceeded"
    if isinstance(error, ContextLengthExceeded):
        return "context_length_exceeded"
    # An operator who stops a stream does not object to its prompt.
    return "invalid_prompt" if error.status < 500 and not isinstance(error, Cancelled) else "server_error"


def _find_cause(reason: FinishReason | None) -> IncompleteDetails | None:
    """Why an answer with this finish reason is incomplete; None = it is complete."""
    match reason:
        case "length":
            return IncompleteDetails("max_output_tokens")
        case "content_filter":
            return IncompleteDetails("content_filter")
        case "stop" | "tool_calls" | None:
            return None
        case _:
            assert_never(reason)
