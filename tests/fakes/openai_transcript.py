"""The bytes of OpenAI's chat completions, written by hand after the public API reference."""

import json
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta

from tests.fakes.schema_rules import check_enforceable

ID = "chatcmpl-123"
CREATED = 1694268190


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    text: str


class ImageUrl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[str, Meta(pattern="^(https://|http://|data:image/[a-z+]+;base64,)")]
    detail: Literal["auto", "low", "high"] | None = None


class Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="image_url"):
    image_url: ImageUrl


class CalledFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: str


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    type: Literal["function"]
    function: CalledFunction


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[Text | Image, ...] | None = None
    tool_calls: Annotated[tuple[Call, ...], Meta(min_length=1)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    strict: bool | None = None


class ToolSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["function"]
    function: Function


class ChosenFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class NamedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["function"]
    function: ChosenFunction


class AllowedTools(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: Literal["auto", "required"]
    tools: Annotated[tuple[NamedTool, ...], Meta(min_length=1)]


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="function"):
    function: ChosenFunction


class ChosenFrom(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="allowed_tools"):
    allowed_tools: AllowedTools


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    include_usage: bool = False


class JsonSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


def check_strict(shape: ResponseFormat | None, tools: tuple[ToolSpec, ...] | None) -> None:
    """See that what is asked to be strict can be enforced."""
    if shape is not None and shape.json_schema is not None and shape.json_schema.strict:
        check_enforceable(shape.json_schema.schema, all_required=True)
    for tool in tools or ():
        if tool.function.strict:
            check_enforceable(tool.function.parameters, all_required=True)


class ChatBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the reference allows in a request; anything else is refused with 400."""

    model: str
    messages: Annotated[tuple[Message, ...], Meta(min_length=1)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop: Annotated[tuple[str, ...], Meta(max_length=4)] | None = None
    seed: int | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[tuple[ToolSpec, ...], Meta(min_length=1, max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | Chosen | ChosenFrom | None = None
    parallel_tool_calls: bool | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    logit_bias: dict[int, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None

    @classmethod
    def checked(cls, body: bytes) -> Self:
        """Read a request, or say what is wrong with it."""
        read = msgspec.json.decode(body, type=cls)
        if read.stream_options is not None and not read.stream:
            raise msgspec.ValidationError("The 'stream_options' parameter is only allowed when 'stream' is enabled.")
        if read.top_logprobs is not None and not read.logprobs:
            raise msgspec.ValidationError("The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.")
        check_strict(read.response_format, read.tools)
        if (read.tool_choice is not None or read.parallel_tool_calls is not None) and not read.tools:
            raise msgspec.ValidationError("'tool_choice' is only allowed when 'tools' are specified.")
        if any(message.reasoning_content is not None for message in read.messages) and cls is ChatBody:
            raise msgspec.ValidationError("Unknown parameter: 'messages[1].reasoning_content'.")
        _check_turns(read.messages)
        return read


class StructuredOutputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    regex: str | None = None
    choice: Annotated[tuple[str, ...], Meta(min_length=1)] | None = None


class CompatibleBody(ChatBody, frozen=True, forbid_unknown_fields=True):
    """What vLLM, llama.cpp's server and LM Studio take besides."""

    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    length_penalty: float | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    structured_outputs: StructuredOutputs | None = None


def _check_turns(messages: tuple[Message, ...]) -> None:
    """Each call of a tool has its answer right after it, and no answer stands without its call."""
    waiting: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                raise msgspec.ValidationError("messages with role 'tool' must be a response to a preceeding message")
            waiting.discard(message.tool_call_id)
            continue
        if waiting:
            raise msgspec.ValidationError("An assistant message with 'tool_calls' must be followed by tool messages")
        if message.tool_calls and message.role != "assistant":
            raise msgspec.ValidationError("'tool_calls' is only allowed for the role 'assistant'")
        if message.content is None and not message.tool_calls:
            raise msgspec.ValidationError("expected a string or an array, got null")
        parts = message.content if isinstance(message.content, tuple) else ()
        if message.role != "user" and any(isinstance(part, Image) for part in parts):
            raise msgspec.ValidationError("image_url is only allowed for the role 'user'")
        waiting = {call.id for call in message.tool_calls or ()}


def event(model: str, delta: dict[str, Any], finish_reason: str | None = None, **choice: Any) -> bytes:
    """One piece of an answer."""
    return _event(
        model, [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason, **choice}], None
    )


def first_event(model: str) -> bytes:
    """The role, and no text yet."""
    return event(model, {"role": "assistant", "content": "", "refusal": None})


def finish_event(model: str, reason: str) -> bytes:
    """The terminal marker."""
    return event(model, {}, reason)


def usage_event(
    model: str,
    prompt_tokens: int,
    completion_tokens: int,
    *,
    cached: int | None = None,
    reasoning: int | None = None,
    written: int = 0,
) -> bytes:
    """The usage, with empty choices; with its details where they are given."""
    details: dict[str, Any] = {}
    if cached is not None:
        details["prompt_tokens_details"] = {"cached_tokens": cached, "cache_write_tokens": written, "audio_tokens": 0}
    if reasoning is not None:
        details["completion_tokens_details"] = {"reasoning_tokens": reasoning, "audio_tokens": 0}
    return _event(model, [], _usage(prompt_tokens, completion_tokens) | details)


def done() -> bytes:
    """The end of the stream."""
    return b"data: [DONE]\n\n"


def error_event(code: str | int | None, kind: str | None, message: str = "no") -> bytes:
    """An error in a stream that began with status 200."""
    fault = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return b"data: " + json.dumps(fault).encode() + b"\n\n"


def refusal(message: str, code: str | None, kind: str = "invalid_request_error") -> bytes:
    """The body of an error."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def whole(model: str, text: str, reason: str, usage: tuple[int, int] | None) -> bytes:
    """An answer that is not streamed."""
    message = {"role": "assistant", "content": text, "refusal": None}
    return json.dumps(
        {
            "id": ID,
            "object": "chat.completion",
            "created": CREATED,
            "model": _dated(model),
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
            "usage": _usage(*usage) if usage else None,
        }
    ).encode()


def _event(model: str, choices: list[dict[str, Any]], usage: dict[str, Any] | None) -> bytes:
    chunk = {
        "id": ID,
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": _dated(model),
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
        "choices": choices,
        "usage": usage,
    }
    return b"data: " + json.dumps(chunk, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def _dated(model: str) -> str:
    return f"{model}-2026-01-01"
