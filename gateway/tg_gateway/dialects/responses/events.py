"""The events of a response's stream. The field `sequence_number` is the writer's."""

import msgspec

from tg_gateway.dialects.chat import describe_error
from tg_gateway.dialects.responses.response_object import (
    Logprob,
    OutputItem,
    OutputText,
    ReasoningText,
    ResponseObject,
    SummaryText,
)
from tg_schema import TgError
from tg_schema.errors import NotFound


class Event(msgspec.Struct, frozen=True, tag_field="type"):
    """One event; its type is the name of the `event:` line too."""


class ResponseCreated(Event, frozen=True, tag="response.created"):
    """The first event."""

    response: ResponseObject


class ResponseQueued(Event, frozen=True, tag="response.queued"):
    """The second event of a response in the background: no model works on it yet."""

    response: ResponseObject


class ResponseInProgress(Event, frozen=True, tag="response.in_progress"):
    """The event before the first of the output: a model works on it."""

    response: ResponseObject


class ResponseCompleted(Event, frozen=True, tag="response.completed"):
    """The last event of an answer that is whole."""

    response: ResponseObject


class ResponseIncomplete(Event, frozen=True, tag="response.incomplete"):
    """The last event of an answer that was cut by a limit or a filter."""

    response: ResponseObject


class ResponseFailed(Event, frozen=True, tag="response.failed"):
    """The last event of an answer that failed."""

    response: ResponseObject


class ItemAdded(Event, frozen=True, tag="response.output_item.added"):
    """An item begins."""

    output_index: int
    item: OutputItem


class ItemDone(Event, frozen=True, tag="response.output_item.done"):
    """An item as it stands in the final response."""

    output_index: int
    item: OutputItem


class PartAdded(Event, frozen=True, tag="response.content_part.added"):
    """A part of an item begins."""

    item_id: str
    output_index: int
    part: OutputText | ReasoningText
    content_index: int = 0


class PartDone(Event, frozen=True, tag="response.content_part.done"):
    """A part as it stands in the final response."""

    item_id: str
    output_index: int
    part: OutputText | ReasoningText
    content_index: int = 0


class TextDelta(Event, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """A piece of the text. The piece comes last, so that all of its JSON before it is the same for each piece."""

    item_id: str
    output_index: int
    content_index: int = 0
    logprobs: tuple[Logprob, ...] = ()
    delta: str


class TextDone(Event, frozen=True, tag="response.output_text.done"):
    """The whole text."""

    item_id: str
    output_index: int
    text: str
    logprobs: tuple[Logprob, ...] = ()
    content_index: int = 0


class ReasoningTextDelta(Event, frozen=True, tag="response.reasoning_text.delta"):
    """A piece of the thinking."""

    item_id: str
    output_index: int
    delta: str
    content_index: int = 0


class ReasoningTextDone(Event, frozen=True, tag="response.reasoning_text.done"):
    """The whole thinking."""

    item_id: str
    output_index: int
    text: str
    content_index: int = 0


class SummaryPartAdded(Event, frozen=True, tag="response.reasoning_summary_part.added"):
    """A summary begins."""

    item_id: str
    output_index: int
    part: SummaryText
    summary_index: int = 0


class SummaryPartDone(Event, frozen=True, tag="response.reasoning_summary_part.done"):
    """A summary as it stands in the final response."""

    item_id: str
    output_index: int
    part: SummaryText
    summary_index: int = 0


class SummaryTextDelta(Event, frozen=True, tag="response.reasoning_summary_text.delta"):
    """A piece of the summary."""

    item_id: str
    output_index: int
    delta: str
    summary_index: int = 0


class SummaryTextDone(Event, frozen=True, tag="response.reasoning_summary_text.done"):
    """The whole summary."""

    item_id: str
    output_index: int
    text: str
    summary_index: int = 0


class ArgumentsDelta(Event, frozen=True, tag="response.function_call_arguments.delta"):
    """A piece of a call's arguments."""

    item_id: str
    output_index: int
    delta: str


class ArgumentsDone(Event, frozen=True, tag="response.function_call_arguments.done"):
    """All arguments of a call."""

    item_id: str
    output_index: int
    name: str
    arguments: str


class StreamError(Event, frozen=True, tag="error"):
    """Why the events of a response in the background cannot be read on; it says nothing of the response."""

    code: str
    message: str
    param: str | None = None


def describe_stream_error(error: TgError) -> StreamError:
    """An error in the form of the event."""
    detail = describe_error(error)
    # The only thing that may be missing here is the response.
    code = "response_not_found" if isinstance(error, NotFound) else detail.code or detail.type
    return StreamError(code, detail.message)
