"""Answers, events and lists as Anthropic's clients read them: field names are those of its public API reference."""

from typing import Any, Final, assert_never

import msgspec

from tg_gateway.dialects import Tally, server_sent_event
from tg_schema import Usage as Tokens
from tg_schema import encode

PING: Final = server_sent_event(b'{"type":"ping"}', b"ping")
"""The event that keeps a silent stream alive."""


class OutputDetails(msgspec.Struct, frozen=True):
    """Parts of `output_tokens`."""

    thinking_tokens: int


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens so far; None = unknown. `input_tokens` is without what was read from a cache or written to it."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None


class Ending(msgspec.Struct, frozen=True):
    """Why an answer ended."""

    stop_reason: str
    stop_sequence: str | None


def describe_usage(total: Tokens) -> Usage:
    """All tokens so far. Our count for the prompt includes that of the cache."""
    # Counts of providers need not agree with each other, and no count is negative.
    fresh = max(0, (total.in_token or 0) - (total.cached_token or 0) - (total.cache_write_token or 0))
    details = None if total.reasoning_token is None else OutputDetails(total.reasoning_token)
    return Usage(fresh, total.out_token or 0, total.cache_write_token, total.cached_token, details)


def describe_ending(tally: Tally) -> Ending:
    """Why the answer ended, and the text that ended it, if the provider says so."""
    sequence = tally.stopped_by if isinstance(tally.stopped_by, str) else None
    match tally.finish_reason:
        case "length":
            return Ending("max_tokens", sequence)
        case "content_filter":
            return Ending("refusal", sequence)
        case "stop" | "tool_calls" | None:
            ended = "tool_use" if tally.called else "end_turn"
            return Ending(ended if sequence is None else "stop_sequence", sequence)
        case _:
            assert_never(tally.finish_reason)


class TextBlock(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text of the answer."""

    text: str = ""


class ThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    """Thinking, and the proof that it is the provider's."""

    thinking: str = ""
    signature: str = ""


class ToolUseBlock(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    """A call; `input` is a JSON object."""

    id: str
    name: str
    input: msgspec.Raw | dict[str, Any] = msgspec.field(default_factory=dict)


AnswerBlock = TextBlock | ThinkingBlock | ToolUseBlock


class AnswerMessage(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """An answer, whole or before its first block."""

    id: str
    model: str
    usage: Usage
    content: tuple[AnswerBlock, ...] = ()
    stop_reason: str | None = None
    stop_sequence: str | None = None
    role: str = "assistant"


class MessageStart(msgspec.Struct, frozen=True, tag_field="type", tag="message_start"):
    """A stream's first event."""

    message: AnswerMessage


class BlockStart(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_start"):
    """A block begins."""

    index: int
    content_block: AnswerBlock


class TextDelta(msgspec.Struct, frozen=True, tag_field="type", tag="text_delta"):
    """A piece of text."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, tag_field="type", tag="thinking_delta"):
    """A piece of thinking."""

    thinking: str


class SignatureDelta(msgspec.Struct, frozen=True, tag_field="type", tag="signature_delta"):
    """The proof of thinking."""

    signature: str


class InputJsonDelta(msgspec.Struct, frozen=True, tag_field="type", tag="input_json_delta"):
    """A piece of a call's input, as JSON text."""

    partial_json: str


class BlockDelta(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_delta"):
    """A piece of a block."""

    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class Ping(msgspec.Struct, frozen=True, tag_field="type", tag="ping"):
    """Keeps a silent stream alive."""


class BlockStop(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_stop"):
    """A block ends."""

    index: int


class MessageDelta(msgspec.Struct, frozen=True, tag_field="type", tag="message_delta"):
    """All blocks have ended; the usage is that of the whole answer."""

    delta: Ending
    usage: Usage


class MessageStop(msgspec.Struct, frozen=True, tag_field="type", tag="message_stop"):
    """A stream's last event."""


class TokenCount(msgspec.Struct, frozen=True):
    """The answer of `POST /v1/messages/count_tokens`."""

    input_tokens: int


class Model(msgspec.Struct, frozen=True, tag_field="type", tag="model"):
    """A model that can be asked. Its publication date is unknown, so a fixed date stands for that."""

    id: str
    display_name: str
    created_at: str = "1970-01-01T00:00:00Z"
    lifecycle: str = "active"


class ModelList(msgspec.Struct, frozen=True):
    """All models on one page."""

    data: tuple[Model, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool = False


Event = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop


def encode_event(event: Event) -> bytes:
    """An event with its name: Anthropic's SDKs drop those without one."""
    tag = event.__struct_config__.tag
    return server_sent_event(encode(event), str(tag).encode())
