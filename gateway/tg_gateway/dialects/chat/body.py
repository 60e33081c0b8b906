"""The body of `POST /v1/chat/completions` as clients send it, by OpenAI's API reference."""

from typing import Annotated, Any, Literal

import msgspec

from tg_gateway.dialects.chat.sampling import AtLeastOne, SamplingBody
from tg_schema.text_completion import Effort

MAX_TOP_LOGPROBS = 20
"""OpenAI's limit."""


class ImageUrl(msgspec.Struct, frozen=True):
    """An address, or the image itself as a data URL (RFC 2397). `detail` is ignored: no record has it."""

    url: str
    detail: str | None = None


class ContentPart(msgspec.Struct, frozen=True):
    """A part of a message; which field it has depends on `type`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None


class CalledFunction(msgspec.Struct, frozen=True):
    """What the assistant called; `arguments` is JSON text."""

    name: str
    arguments: str = "{}"


class CallSignature(msgspec.Struct, frozen=True, omit_defaults=True):
    """A provider's proof of a call, which comes back with it."""

    signature: str | None = None


class ExtraContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Values for which OpenAI's API has no field; each vendor, such as Google, writes under its own name there."""

    tokengrid: CallSignature = CallSignature()


class AssistantCall(msgspec.Struct, frozen=True):
    """A call that the assistant made in an earlier turn."""

    id: str
    type: str = "function"
    function: CalledFunction | None = None
    extra_content: ExtraContent | None = None


class ReasoningDetail(msgspec.Struct, frozen=True):
    """A piece of the assistant's thinking with its proof, in OpenRouter's format."""

    index: int = 0
    type: str = "reasoning.text"
    text: str | None = None
    signature: str | None = None


class ChatMessage(msgspec.Struct, frozen=True):
    """One turn. `reasoning_content` and `reasoning_details` are the fields that this door itself writes."""

    role: str
    content: str | tuple[ContentPart, ...] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: tuple[AssistantCall, ...] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning_details: tuple[ReasoningDetail, ...] | None = None
    function_call: Any = None
    audio: Any = None


class Function(msgspec.Struct, frozen=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(msgspec.Struct, frozen=True):
    """A tool; only those of the type `function` have one."""

    type: str
    function: Function | None = None


class AllowedTools(msgspec.Struct, frozen=True):
    """The tools of the request that the model may call now."""

    mode: Literal["auto", "required"]
    tools: tuple[FunctionTool, ...]


class ToolChoice(msgspec.Struct, frozen=True):
    """A tool that must be called, or tools that may be. `huggingface_hub` sends a function without a type."""

    type: str = "function"
    function: Function | None = None
    allowed_tools: AllowedTools | None = None


class ChatBody(SamplingBody, frozen=True, kw_only=True):
    """Every field that this door knows; null counts as absent. Ranges are those of the records."""

    messages: tuple[ChatMessage, ...] = ()
    max_tokens: AtLeastOne | None = None
    max_completion_tokens: AtLeastOne | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    tools: tuple[FunctionTool, ...] | None = None
    tool_choice: str | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    modalities: tuple[str, ...] | None = None
    safety_identifier: str | None = None

    # Passed on to the providers that speak OpenAI's API.
    verbosity: Literal["low", "medium", "high"] | None = None
    prediction: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None

    # These fields are refused: what they ask for would be missing in the answer.
    audio: Any = None
    functions: Any = None
    function_call: Any = None
    moderation: Any = None
    web_search_options: Any = None

    # These fields are ignored: the answer is the same without them.
    metadata: Any = None
    service_tier: Any = None
    store: Any = None
