"""JSON of a request -> its fields, as OpenAI's Responses API names them; other fields are ignored, and listed.

Each struct has the fields of all kinds of an item, a part or a tool; the reader of a kind says which it needs.
"""

from typing import Annotated, Any, Literal

import msgspec

from tg_schema.sampling import Fraction, Penalty
from tg_schema.text_completion import Effort

MAX_TOP_LOGPROBS = 20
"""The highest `top_logprobs` (OpenAI's limit)."""
FLEX = "flex"
"""The service tier of requests that may wait (OpenAI's word)."""
MAX_ATTEMPTS = 10
"""The highest `max_attempts`, a field of ours: how often a model may be asked for a waiting response."""
_SAID_OF_ATTEMPTS = (
    "how often a model may be asked for a response that waits; "
    "without it 3 times, or as often as default_max_attempts of the gateway says"
)
Attempts = Annotated[int, msgspec.Meta(ge=1, le=MAX_ATTEMPTS, description=_SAID_OF_ATTEMPTS)]
TEXT_LOGPROBS = "message.output_text.logprobs"
ENCRYPTED_REASONING = "reasoning.encrypted_content"
"""Values of `include` that this door has."""

REFERENCE = "item_reference"
"""The type of an item that refers to a kept one."""

Summary = Literal["auto", "concise", "detailed"]


class ContentPart(msgspec.Struct, frozen=True):
    """A part of a message, of a call's output, or of reasoning."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    file_id: str | None = None


class InputItem(msgspec.Struct, frozen=True):
    """One item of `input`; without a type it is a message."""

    id: str | None = None
    type: str | None = None
    role: str | None = None
    content: str | tuple[ContentPart, ...] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | tuple[ContentPart, ...] | None = None
    summary: tuple[ContentPart, ...] | None = None
    encrypted_content: str | None = None


class ToolBody(msgspec.Struct, frozen=True):
    """A tool in the flat form."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A choice that is more than a word: one function, or some of the tools."""

    type: str
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: tuple[dict[str, Any], ...] | None = None


class ReasoningBody(msgspec.Struct, frozen=True):
    """How much to think, and whether the client wants to read a summary of it."""

    effort: Effort | None = None
    summary: Summary | None = None


class FormatBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form of the text: free, any JSON object, or JSON after a schema."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class TextBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The requested form of the text."""

    format: FormatBody | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class RequestBody(msgspec.Struct, frozen=True):
    """The body of `POST /v1/responses`, and of `POST /v1/responses/input_tokens`, which has fewer fields."""

    model: str | None = None
    input: str | tuple[InputItem, ...] | None = None
    instructions: str | None = None
    stream: bool | None = None
    tools: tuple[ToolBody, ...] | None = None
    tool_choice: Literal["auto", "none", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningBody | None = None
    text: TextBody | None = None
    include: tuple[str, ...] | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    store: bool | None = None
    background: bool | None = None
    service_tier: str | None = None
    max_wait: Annotated[float, msgspec.Meta(gt=0)] | None = None
    max_attempts: Attempts | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None

    @property
    def flexible(self) -> bool:
        """Whether the response may wait until its model has capacity."""
        return bool(self.background) and self.service_tier == FLEX

    def includes(self, what: str) -> bool:
        """Whether `include` names this."""
        return what in (self.include or ())
