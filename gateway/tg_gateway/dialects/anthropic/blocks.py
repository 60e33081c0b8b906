"""Content blocks of a request -> parts of our records, and what has no part of its own."""

from typing import Any, Final

import msgspec

from tg_gateway.dialects.anthropic.body import CacheControl, Content
from tg_gateway.dialects.anthropic.signatures import import_redacted, import_signature
from tg_schema import ImagePart, Message, TextPart, ToolCall, decode
from tg_schema.conversation import CacheMark, ForeignPart, Part, ReasoningPart, make_content
from tg_schema.errors import BadRequest

DIALECT: Final = "anthropic"
"""The dialect of the parts and fields that only Anthropic's API knows."""
MAX_KIND_CHARACTERS = 64
"""The most characters of a block's type that an error repeats."""


class _Kind(msgspec.Struct, frozen=True):
    type: str


class _Text(msgspec.Struct, frozen=True):
    text: str
    cache_control: CacheControl | None = None


class _Source(msgspec.Struct, frozen=True):
    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class _Image(msgspec.Struct, frozen=True):
    source: _Source
    cache_control: CacheControl | None = None


class _Thinking(msgspec.Struct, frozen=True):
    thinking: str = ""
    signature: str | None = None


class _RedactedThinking(msgspec.Struct, frozen=True):
    data: str


class _ToolUse(msgspec.Struct, frozen=True):
    id: str
    name: str
    input: dict[str, Any] | None = None
    cache_control: CacheControl | None = None


class _RawInput(msgspec.Struct, frozen=True):
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _ToolResult(msgspec.Struct, frozen=True):
    tool_use_id: str
    content: Content | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None


Block = Part | ToolCall | Message
"""A part of a turn, a call in it, or the result of a call, which is a turn of its own."""


def read_content(content: Content, place: str, *, in_result: bool = False) -> list[Block]:
    """The blocks of a turn, in their order; text alone is one block.

    Args:
        content: text or blocks.
        place: the position of the block, for errors.
        in_result: whether it is the content of a tool's result, which has no results in it.

    Raises:
        BadRequest: a block lacks a field or has a wrong one; the message says which block.
    """
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    return [_read_block(bytes(raw), f"{place}.{number}", in_result=in_result) for number, raw in enumerate(content)]


def _read_block(raw: bytes, place: str, *, in_result: bool) -> Block:
    try:
        return _convert(raw, place, in_result=in_result)
    except BadRequest as error:
        message = error.message
        # The error of an inner block already names the block's position.
        raise BadRequest(message if message.startswith(place) else f"{place}: {message}") from None


def _convert(raw: bytes, place: str, *, in_result: bool) -> Block:
    match decode(_Kind, raw).type:
        case "text":
            text = decode(_Text, raw)
            return TextPart(text.text, mark_of(text.cache_control))
        case "image":
            return _convert_image(raw)
        case "thinking" | "redacted_thinking" as kind:
            return _convert_thinking(raw, redacted=kind == "redacted_thinking")
        case "tool_use" | "tool_result" if in_result:
            raise BadRequest("a tool's result has no calls or results in it")
        case "tool_use":
            call = decode(_ToolUse, raw)
            return ToolCall(call.id, call.name, _input_text(raw, call), cache=mark_of(call.cache_control))
        case "tool_result":
            return _convert_result(raw, place)
    # A kind that only Anthropic knows: if the model's provider does not accept it, it is refused by name.
    return ForeignPart(DIALECT, decode(dict[str, Any], raw))


def _convert_thinking(raw: bytes, *, redacted: bool) -> ReasoningPart:
    if redacted:
        return ReasoningPart("", import_redacted(decode(_RedactedThinking, raw).data))
    thinking = decode(_Thinking, raw)
    return ReasoningPart(thinking.thinking, import_signature(thinking.signature))


def _convert_image(raw: bytes) -> Part:
    image = decode(_Image, raw)
    source, mark = image.source, mark_of(image.cache_control)
    if source.type == "base64" and source.data and source.media_type:
        return ImagePart(media_type=source.media_type, data=source.data, cache=mark)
    if source.type == "url" and source.url:
        return ImagePart(url=source.url, cache=mark)
    if source.type in {"base64", "url"}:
        raise BadRequest("the image's source must have `media_type` and `data` (base64), or `url`")
    return ForeignPart(DIALECT, decode(dict[str, Any], raw))


def _input_text(raw: bytes, call: _ToolUse) -> str:
    """A call's input, byte for byte as the client wrote it: a changed one would not be in the provider's cache."""
    return bytes(decode(_RawInput, raw).input).decode() if call.input is not None else "{}"


def _convert_result(raw: bytes, place: str) -> Message:
    result = decode(_ToolResult, raw)
    inner = read_content(result.content or "", f"{place}.content", in_result=True)
    parts = tuple(part for part in inner if not isinstance(part, ToolCall | Message))
    content = result.content if isinstance(result.content, str) else make_content(parts)
    error, mark = bool(result.is_error), mark_of(result.cache_control)
    return Message("tool", content, tool_call_id=result.tool_use_id, error=error, cache=mark)


def mark_of(control: CacheControl | None) -> CacheMark | None:
    """A cache mark; a time to live that we do not know is the default's."""
    if control is None:
        return None
    return "1h" if control.ttl == "1h" else "5m"


def kind_of(part: ForeignPart) -> str:
    """A foreign block's type, for an error; for an image with its source's type, since other images may be accepted."""
    source = part.value.get("source")
    names = (part.value.get("type"), source.get("type") if isinstance(source, dict) else None)
    kind, inner = (str(name)[:MAX_KIND_CHARACTERS] for name in names)
    return f"{kind} ({inner})" if kind == "image" else kind
