"""The body of `POST /v1/chat/completions` as it comes: OpenAI's API reference, and vLLM's further sampling fields."""

from typing import Annotated, Any, Literal

import msgspec

from tg_schema.sampling import Choices, Fraction, Penalty, TokenId
from tg_schema.text_completion import Effort

MAX_TOP_LOGPROBS = 20
"""OpenAI's limit."""

AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
AnyCount = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


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
    """What OpenAI's API has no field for; vendors write under their own name there, as Google does."""

    tokengrid: CallSignature = CallSignature()


class AssistantCall(msgspec.Struct, frozen=True):
    """A call that the assistant made in an earlier turn."""

    id: str
    type: str = "function"
    function: CalledFunction | None = None
    extra_content: ExtraContent | None = None


class ReasoningDetail(msgspec.Struct, frozen=True):
    """A piece of the assistant's thinking with its proof, in the form in which OpenRouter tells it."""

    index: int = 0
    type: str = "reasoning.text"
    text: str | None = None
    signature: str | None = None


class ChatMessage(msgspec.Struct, frozen=True):
    """One turn. `reasoning_content` and `reasoning_details` are those that this door has written."""

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
    """Those of the request's tools that the model may call now."""

    mode: Literal["auto", "required"]
    tools: tuple[FunctionTool, ...]


class ToolChoice(msgspec.Struct, frozen=True):
    """A tool that must be called, or tools that may be."""

    type: str
    function: Function | None = None
    allowed_tools: AllowedTools | None = None


class JsonSchema(msgspec.Struct, frozen=True):
    """A named schema of the answer."""

    name: str = ""
    schema: dict[str, Any] | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    """The form of the answer."""

    type: str
    json_schema: JsonSchema | None = None


class StructuredOutputs(msgspec.Struct, frozen=True):
    """vLLM's further forms of an answer."""

    json: dict[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: Any = None
    structural_tag: Any = None


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream tells besides the answer."""

    include_usage: bool | None = None


class ChatBody(msgspec.Struct, frozen=True, kw_only=True):
    """Every field that this door knows; null is as good as absent. Ranges are those of the records."""

    model: str | None = None
    messages: tuple[ChatMessage, ...] = ()
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    top_p: Fraction | None = None
    max_tokens: AtLeastOne | None = None
    max_completion_tokens: AtLeastOne | None = None
    stop: str | tuple[str, ...] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    n: Choices | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[int, Annotated[float, msgspec.Meta(ge=-100, le=100)]] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    # vLLM's names, which its users send in `extra_body`.
    best_of: Choices | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Fraction | None = None
    typical_p: Fraction | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=100)] | None = None
    length_penalty: Annotated[float, msgspec.Meta(ge=-100, le=100)] | None = None
    min_tokens: AnyCount | None = None
    ignore_eos: bool | None = None
    stop_token_ids: tuple[TokenId, ...] | None = None
    include_stop_str_in_output: bool | None = None
    structured_outputs: StructuredOutputs | None = None
    priority: int | None = None

    tools: tuple[FunctionTool, ...] | None = None
    tool_choice: str | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: Effort | None = None
    modalities: tuple[str, ...] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    # Passed on to the providers that speak OpenAI's API.
    verbosity: Literal["low", "medium", "high"] | None = None
    prediction: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None

    # Refused: what they ask for would be missing in the answer.
    audio: Any = None
    functions: Any = None
    function_call: Any = None
    moderation: Any = None
    web_search_options: Any = None

    # Without effect: the answer is the same.
    metadata: Any = None
    service_tier: Any = None
    store: Any = None
