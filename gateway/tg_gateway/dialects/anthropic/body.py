"""The JSON of a request for a message, as far as our records know it.

Content blocks and tools stay undecoded here: their `type` decides how to decode them, and there are more types than we
know.
"""

from typing import Annotated, Any, Literal

import msgspec

from tg_schema.sampling import Fraction
from tg_schema.text_completion import Effort

Content = str | tuple[msgspec.Raw, ...]


class CacheControl(msgspec.Struct, frozen=True):
    """The prompt up to here should be cached."""

    ttl: str | None = None


class Turn(msgspec.Struct, frozen=True):
    """One of `messages`."""

    role: Literal["user", "assistant", "system"]
    content: Content


class Thinking(msgspec.Struct, frozen=True):
    """Whether the model thinks: with a budget, as much as it likes, or not at all."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None


class JsonFormat(msgspec.Struct, frozen=True):
    """The answer is JSON that satisfies a schema."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True):
    """The effort for the answer, and the answer's format."""

    effort: Effort | None = None
    format: JsonFormat | None = None


class ToolChoice(msgspec.Struct, frozen=True):
    """Which tools must be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Metadata(msgspec.Struct, frozen=True):
    """The end user whose request it is."""

    user_id: str | None = None


class MessageBody(msgspec.Struct, frozen=True):
    """The body of `POST /v1/messages` and, without an answer's parameters, of `POST /v1/messages/count_tokens`."""

    messages: tuple[Turn, ...] = ()
    model: str | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    system: Content | None = None
    stream: bool | None = None
    tools: tuple[msgspec.Raw, ...] | None = None
    tool_choice: ToolChoice | None = None
    stop_sequences: tuple[str, ...] | None = None
    temperature: Fraction | None = None
    top_p: Fraction | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: JsonFormat | None = None
    metadata: Metadata | None = None
