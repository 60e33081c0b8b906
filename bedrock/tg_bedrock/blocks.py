"""Message -> content blocks of Bedrock's Converse, after the "Amazon Bedrock API reference"."""

import base64
import binascii
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from tg_base.llm import call_arguments, read_signature
from tg_schema import ImagePart, Message, TextPart
from tg_schema.conversation import CacheMark, ReasoningPart
from tg_schema.errors import BadRequest

if TYPE_CHECKING:
    from types_boto3_bedrock_runtime.literals import ImageFormatType
    from types_boto3_bedrock_runtime.type_defs import (
        CachePointBlockTypeDef,
        ContentBlockUnionTypeDef,
        ImageBlockUnionTypeDef,
        MessageUnionTypeDef,
        ToolResultBlockUnionTypeDef,
    )

ORIGIN = "bedrock"
"""The origin in the signatures of thinking that come from Bedrock."""

REDACTED_ORIGIN = "bedrock-redacted"
"""The origin in signatures of thinking that is encrypted as a whole; their value is the base64 of its bytes."""

_FORMATS: dict[str, "ImageFormatType"] = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}


def wire_messages(turns: Iterable[Message]) -> "list[MessageUnionTypeDef]":
    """Merge consecutive turns of one role: Converse requires roles to alternate.

    Raises:
        BadRequest: this API cannot express a part, or a call's arguments are not a JSON object.
    """
    # Drop a turn without blocks first, so that its neighbours can merge.
    spoken = groupby(
        ((turn.role == "assistant", blocks) for turn in turns if (blocks := tuple(_blocks(turn)))),
        key=lambda turn: turn[0],
    )
    return [
        {"role": "assistant" if ours else "user", "content": [block for _, blocks in group for block in blocks]}
        for ours, group in spoken
    ]


def cache_point(mark: CacheMark) -> "CachePointBlockTypeDef":
    """What follows the last block of a prefix that should be cached."""
    return {"type": "default"} if mark == "5m" else {"type": "default", "ttl": mark}


def _blocks(turn: Message) -> "Iterator[ContentBlockUnionTypeDef]":
    if turn.role == "tool":
        yield {"toolResult": _result(turn)}
        if mark := turn.cache or next((part.cache for part in turn.content_parts if part.cache), None):
            yield {"cachePoint": cache_point(mark)}
        return
    for part in turn.parts:
        if isinstance(part, ReasoningPart):
            yield from _thinking(part)
        elif isinstance(part, TextPart):
            yield {"text": part.text}
        elif isinstance(part, ImagePart):
            yield {"image": _image(part)}
        if isinstance(part, TextPart | ImagePart) and part.cache:
            yield {"cachePoint": cache_point(part.cache)}
    for call in turn.tool_calls:
        yield {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call_arguments(call.arguments)}}
        if call.cache:
            yield {"cachePoint": cache_point(call.cache)}


def _thinking(part: ReasoningPart) -> "Iterator[ContentBlockUnionTypeDef]":
    """Thinking of another provider, or without a signature, is left out: the model would refuse it."""
    signature = read_signature(part.signature, ORIGIN)
    redacted = read_signature(part.signature, REDACTED_ORIGIN)
    if signature is not None:
        yield {"reasoningContent": {"reasoningText": {"text": part.text, "signature": signature}}}
    elif redacted is not None:
        yield {"reasoningContent": {"redactedContent": _bytes(redacted, "a signature of redacted thinking")}}


def _result(turn: Message) -> "ToolResultBlockUnionTypeDef":
    result: ToolResultBlockUnionTypeDef = {
        "toolUseId": turn.tool_call_id or "",
        "content": [
            {"text": part.text} if isinstance(part, TextPart) else {"image": _image(part)}
            for part in turn.content_parts
        ],
    }
    if turn.error:
        result["status"] = "error"
    return result


def _image(part: ImagePart) -> "ImageBlockUnionTypeDef":
    if part.data is None:
        raise BadRequest("this provider takes no image by its URL; send the image itself, as base64 in `data`")
    kind = _FORMATS.get(part.media_type)
    if kind is None:
        raise BadRequest(f"this provider takes images of the types {', '.join(_FORMATS)}")
    return {"format": kind, "source": {"bytes": _bytes(part.data, "an image's `data`")}}


def _bytes(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise BadRequest(f"{what} is not base64") from None
