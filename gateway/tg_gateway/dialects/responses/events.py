"""The events of a response's stream. The field `sequence_number` is the writer's."""

from collections.abc import Iterator

import msgspec

from tg_gateway.dialects.chat import TokenLogprob, describe_error
from tg_gateway.dialects.responses.response_object import (
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


class _ResponseEvent(Event, frozen=True):
    response: ResponseObject


class ResponseCreated(_ResponseEvent, frozen=True, tag="response.created"):
    """The first event."""


class ResponseQueued(_ResponseEvent, frozen=True, tag="response.queued"):
    """The second event of a response in the background: no model works on it yet."""


class ResponseInProgress(_ResponseEvent, frozen=True, tag="response.in_progress"):
    """The event before the first of the output: a model works on it."""


class ResponseCompleted(_ResponseEvent, frozen=True, tag="response.completed"):
    """The last event of an answer that is whole."""


class ResponseIncomplete(_ResponseEvent, frozen=True, tag="response.incomplete"):
    """The last event of an answer that was cut by a limit or a filter."""


class ResponseFailed(_ResponseEvent, frozen=True, tag="response.failed"):
    """The last event of an answer that failed."""


class _ItemEvent(Event, frozen=True):
    output_index: int
    item: OutputItem


class ItemAdded(_ItemEvent, frozen=True, tag="response.output_item.added"):
    """An item begins."""


class ItemDone(_ItemEvent, frozen=True, tag="response.output_item.done"):
    """An item in the form of the final response."""


class _PieceEvent(Event, frozen=True):
    """An event about a piece of an item."""

    item_id: str
    output_index: int


class _PartEvent(_PieceEvent, frozen=True):
    part: OutputText | ReasoningText
    content_index: int = 0


class PartAdded(_PartEvent, frozen=True, tag="response.content_part.added"):
    """A part of an item begins."""


class PartDone(_PartEvent, frozen=True, tag="response.content_part.done"):
    """A part in the form of the final response."""


class TextDelta(_PieceEvent, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """A piece of the text. The piece comes last, so that all of its JSON before it is the same for each piece."""

    content_index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    delta: str


class TextDone(_PieceEvent, frozen=True, tag="response.output_text.done"):
    """The whole text."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    content_index: int = 0


class ReasoningTextDelta(_PieceEvent, frozen=True, tag="response.reasoning_text.delta"):
    """A piece of the thinking."""

    delta: str
    content_index: int = 0


class ReasoningTextDone(_PieceEvent, frozen=True, tag="response.reasoning_text.done"):
    """The whole thinking."""

    text: str
    content_index: int = 0


class _SummaryPartEvent(_PieceEvent, frozen=True):
    part: SummaryText
    summary_index: int = 0


class SummaryPartAdded(_SummaryPartEvent, frozen=True, tag="response.reasoning_summary_part.added"):
    """A summary begins."""


class SummaryPartDone(_SummaryPartEvent, frozen=True, tag="response.reasoning_summary_part.done"):
    """A summary in the form of the final response."""


class SummaryTextDelta(_PieceEvent, frozen=True, tag="response.reasoning_summary_text.delta"):
    """A piece of the summary."""

    delta: str
    summary_index: int = 0


class SummaryTextDone(_PieceEvent, frozen=True, tag="response.reasoning_summary_text.done"):
    """The whole summary."""

    text: str
    summary_index: int = 0


class ArgumentsDelta(_PieceEvent, frozen=True, tag="response.function_call_arguments.delta"):
    """A piece of a call's arguments."""

    delta: str


class ArgumentsDone(_PieceEvent, frozen=True, tag="response.function_call_arguments.done"):
    """All arguments of a call."""

    name: str
    arguments: str


class StreamError(Event, frozen=True, tag="error"):
    """Says why the events of a response in the background cannot be read on; it says nothing about the response."""

    code: str
    message: str
    param: str | None = None


def list_events(kind: type[Event] = Event) -> Iterator[type[Event]]:
    """All events, or those of one kind."""
    for narrower in kind.__subclasses__():
        yield from list_events(narrower)
    if not kind.__subclasses__():
        yield kind


def describe_stream_error(error: TgError) -> StreamError:
    """An error in the form of the event."""
    detail = describe_error(error)
    # The only thing that may be missing here is the response.
    code = "response_not_found" if isinstance(error, NotFound) else detail.code or detail.type
    return StreamError(code, detail.message)
