"""The bytes of Anthropic's Messages, written by hand after the public API reference."""

import json
from base64 import b64encode
from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tests.fakes.schema_rules import check_enforceable


class CacheControl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    text: Annotated[str, Meta(min_length=1)]
    cache_control: CacheControl | None = None


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="base64"):
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: Annotated[str, Meta(min_length=1)]


class Url(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="url"):
    url: Annotated[str, Meta(pattern="^https?://")]


class Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="image"):
    source: Base64 | Url
    cache_control: CacheControl | None = None


class ToolUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="tool_use"):
    id: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]+$")]
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,128}$")]
    input: dict[str, Any]
    cache_control: CacheControl | None = None


class ToolResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="tool_result"):
    tool_use_id: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]+$")]
    content: str | tuple[Text | Image, ...] = ""
    is_error: bool = False
    cache_control: CacheControl | None = None


class Thought(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="thinking"):
    thinking: str
    signature: str


class RedactedThought(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="redacted_thinking"
):
    data: Annotated[str, Meta(min_length=1)]


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["user", "assistant"]
    content: (
        str | Annotated[tuple[Text | Image | ToolUse | ToolResult | Thought | RedactedThought, ...], Meta(min_length=1)]
    )

    @property
    def blocks(self) -> tuple[Text | Image | ToolUse | ToolResult | Thought | RedactedThought, ...]:
        return () if isinstance(self.content, str) else self.content


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,128}$")]
    input_schema: dict[str, Any] = {}
    description: str = ""
    strict: bool = False
    cache_control: CacheControl | None = None
    type: Literal["custom", "web_search_20250305"] = "custom"
    max_uses: int | None = None


class ToolChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["auto", "any", "none", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Format(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Format | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user_id: str


class Thinking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Annotated[int, Meta(ge=1024)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class MessagesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the reference allows in a request, as far as we use it; anything else is refused with 400."""

    messages: Annotated[tuple[Turn, ...], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    stream: bool = False
    model: str | None = None
    anthropic_version: str | None = None
    system: str | tuple[Text, ...] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    stop_sequences: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None
    thinking: Thinking | None = None
    metadata: Metadata | None = None
    context_management: dict[str, Any] | None = None

    @classmethod
    def checked(cls, body: bytes, *, counts: bool, betas: str) -> "MessagesBody":
        """Read a request to answer or to count its tokens, or say what is wrong with it."""
        read = msgspec.json.decode(body, type=cls)
        if read.output_config is not None and read.output_config.format is not None:
            check_enforceable(read.output_config.format.schema, all_required=False)
        answered = (read.max_tokens, read.stream or None, read.temperature, read.metadata, read.top_p, read.top_k)
        if counts and any(value is not None for value in (*answered, read.stop_sequences or None)):
            raise msgspec.ValidationError("max_tokens: Extra inputs are not permitted")
        if not counts and (read.max_tokens is None or not read.stream):
            raise msgspec.ValidationError("max_tokens: Field required")
        if read.context_management is not None and "context-management-2025-06-27" not in betas.split(","):
            raise msgspec.ValidationError("context_management: Extra inputs are not permitted")
        for wrong in (_wrong_order(read), _wrong_tools(read), _wrong_thinking(read), _wrong_thoughts(read)):
            if wrong:
                raise msgspec.ValidationError(wrong)
        return read


def _wrong_order(body: MessagesBody) -> str | None:
    if body.messages[0].role != "user":
        return "messages: first message must use the user role"
    asked: set[str] = set()
    for number, turn in enumerate(body.messages):
        blocks = turn.blocks
        answered = {block.tool_use_id for block in blocks if isinstance(block, ToolResult)}
        if asked - answered:
            return f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after"
        if answered - asked:
            return f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks"
        asked = {block.id for block in blocks if isinstance(block, ToolUse)}
        if asked and turn.role != "assistant":
            return f"messages.{number}: `tool_use` blocks can only be in `assistant` messages"
    return None


def _wrong_tools(body: MessagesBody) -> str | None:
    choice = body.tool_choice
    if choice is not None and not body.tools:
        return "tool_choice: may only be specified while providing tools"
    if choice is not None and (choice.type == "tool") != (choice.name is not None):
        return "tool_choice.name: Field required, or extra inputs are not permitted"
    if choice is not None and choice.name is not None and choice.name not in {tool.name for tool in body.tools}:
        return f"tool_choice: Tool '{choice.name}' not found in provided tools"
    if choice is not None and choice.type == "none" and choice.disable_parallel_tool_use is not None:
        return "tool_choice.none.disable_parallel_tool_use: Extra inputs are not permitted"
    return _wrong_shapes(body)


def _wrong_shapes(body: MessagesBody) -> str | None:
    if any(tool.type == "custom" and tool.input_schema.get("type") != "object" for tool in body.tools):
        return "tools.0.custom.input_schema.type: Field required"
    form = body.output_config and body.output_config.format
    shape = form and form.schema
    if shape and shape.get("type") == "object" and shape.get("additionalProperties") is not False:
        return "output_config.format.schema: 'additionalProperties' must be explicitly set to false"
    return None


def _wrong_thinking(body: MessagesBody) -> str | None:
    thinking = body.thinking
    if thinking is None or thinking.type == "disabled":
        return None
    if (thinking.type == "enabled") != (thinking.budget_tokens is not None):
        return "thinking.enabled.budget_tokens: Field required, or extra inputs are not permitted"
    if body.max_tokens is not None and (thinking.budget_tokens or 0) >= body.max_tokens:
        return "`max_tokens` must be greater than `thinking.budget_tokens`"
    if body.temperature not in {None, 1.0}:
        return "`temperature` may only be set to 1 when thinking is enabled"
    if body.tool_choice is not None and body.tool_choice.type in {"any", "tool"}:
        return "Thinking may not be enabled when tool_choice forces tool use."
    return None


def _wrong_thoughts(body: MessagesBody) -> str | None:
    """Thinking must come back unchanged, and before the calls that it led to."""
    for number, turn in enumerate(body.messages):
        for block in turn.blocks:
            if isinstance(block, Thought | RedactedThought) and turn.role != "assistant":
                return f"messages.{number}: `thinking` blocks may only be in `assistant` messages"
            if isinstance(block, Thought) and block.signature != sign_thought(block.thinking):
                return f"messages.{number}: Invalid `signature` in `thinking` block"
            if isinstance(block, RedactedThought) and block.data != REDACTED:
                return f"messages.{number}: Invalid `data` in `redacted_thinking` block"
    if body.thinking is None or body.thinking.type != "enabled":
        return None
    asked = [
        number
        for number, turn in enumerate(body.messages)
        if turn.role == "user" and not any(isinstance(block, ToolResult) for block in turn.blocks)
    ]
    answers = [turn for turn in body.messages[asked[-1] + 1 :] if turn.role == "assistant"]
    if answers and not isinstance(answers[0].blocks[0], Thought | RedactedThought):
        return "Expected `thinking` or `redacted_thinking`, but found `tool_use`"
    return None


REDACTED = "EroBCkYIBxgCKkBu"
"""The only encrypted thinking that this API has ever told."""


def sign_thought(thinking: str) -> str:
    """This API's signature of a text."""
    return b64encode(sha256(thinking.encode()).digest()).decode()


def event(kind: str, **fields: Any) -> bytes:
    """One event of a stream."""
    data = json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


def delta(index: int, kind: str, **fields: Any) -> bytes:
    """A piece of a block."""
    return event("content_block_delta", index=index, delta={"type": f"{kind}_delta", **fields})


def error_body(kind: str, message: str = "no") -> dict[str, Any]:
    """What is said of a failure, in a body and in a stream."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
