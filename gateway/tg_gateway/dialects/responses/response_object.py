"""The JSON of a response and of its output items, as OpenAI's Responses API names the fields."""

from functools import partial
from typing import Any, Literal

import msgspec

from tg_gateway.dialects.chat import TokenLogprob
from tg_gateway.dialects.responses.request_body import ReasoningBody
from tg_schema import Usage

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    """A text part of a message."""

    text: str = ""
    annotations: tuple[Any, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


class ReasoningText(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning_text"):
    """Thinking, unchanged."""

    text: str = ""


class SummaryText(msgspec.Struct, frozen=True, tag_field="type", tag="summary_text"):
    """Thinking, as sent to a client that asked for a summary."""

    text: str = ""


class OutputMessage(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """What the model said."""

    id: str
    status: ItemStatus
    content: tuple[OutputText, ...] = ()
    role: str = "assistant"


class ReasoningItem(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="reasoning"):
    """The model's thinking; `encrypted_content` is set only if the client asked for it."""

    id: str
    status: ItemStatus
    # A default that is always on the wire.
    summary: tuple[SummaryText, ...] = msgspec.field(default_factory=lambda: ())
    content: tuple[ReasoningText, ...] = ()
    encrypted_content: str | None = None


class FunctionCall(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    """A call that the model made."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str = ""


OutputItem = OutputMessage | ReasoningItem | FunctionCall


class InputDetails(msgspec.Struct, frozen=True):
    """Parts of the input tokens."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct, frozen=True):
    """Parts of the output tokens."""

    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, frozen=True):
    """What the answer has cost."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseError(msgspec.Struct, frozen=True):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens", "content_filter"]


class TextFormat(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Any text."""


class JsonObjectFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_object"):
    """Any JSON object."""


class JsonSchemaFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_schema"):
    """The format "JSON that satisfies a schema", with every field that the published description requires."""

    name: str
    description: str | None
    schema: msgspec.Raw
    strict: bool


class TextConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """The requested form of the text."""

    format: TextFormat | JsonObjectFormat | JsonSchemaFormat
    verbosity: str | None = None


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    """A response, at any time of its life, with every field that Open Responses requires.

    Fields of the request that may be long are JSON already, or marks (`LongFields`): each response is written three
    times, and a request of 10 MB would hold up everybody each time.

    Numbers that the request does not set appear as OpenAI's defaults, since the description allows no null for them.
    The provider may use other defaults. `user` is left out if the request has none: OpenAI's description allows no null
    for it, and Open Responses has no such field.
    """

    id: str
    object: str = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus
    background: bool = False
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: msgspec.Raw = msgspec.field(default_factory=partial(msgspec.Raw, b"null"))
    max_output_tokens: int | None = None
    max_tool_calls: None = None
    metadata: msgspec.Raw = msgspec.field(default_factory=partial(msgspec.Raw, b"{}"))
    model: str
    output: tuple[OutputItem, ...] = ()
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: ReasoningBody = ReasoningBody()
    safety_identifier: str | None = None
    store: bool = False
    service_tier: str = "default"
    temperature: float
    text: TextConfig
    tool_choice: msgspec.Raw = msgspec.field(default_factory=partial(msgspec.Raw, b'"auto"'))
    tools: msgspec.Raw = msgspec.field(default_factory=partial(msgspec.Raw, b"[]"))
    top_logprobs: int
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    truncation: str = "disabled"
    usage: ResponseUsage | None = None
    user: str | msgspec.UnsetType = msgspec.UNSET


def make_usage(total: Usage) -> ResponseUsage:
    """The usage of a response; a number that the provider does not count is 0."""
    read, written = total.in_token or 0, total.out_token or 0
    parts = InputDetails(total.cached_token or 0, total.cache_write_token or 0)
    return ResponseUsage(read, parts, written, OutputDetails(total.reasoning_token or 0), read + written)
