"""The messages of a chat -> turns of a request record; a tool's result finds its call by the tool's name."""

import binascii
from base64 import b64decode
from collections.abc import Sequence
from typing import Final

from tg_gateway.dialects.ollama.bodies import AssistantCall, ChatMessage
from tg_schema import ImagePart, Message, TextPart, ToolCall, encode
from tg_schema.conversation import Part, ReasoningPart, Role, make_content
from tg_schema.errors import BadRequest

_ROLES: Final[dict[str, Role]] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_HEAD_CHARACTERS: Final = 16
"""Characters of base64 for the 12 bytes by which image types are recognized."""
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)
"""How images of these types begin."""


def read_messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """The turns of a conversation.

    Raises:
        BadRequest: one is not in order, or a tool's result belongs to no call.
    """
    if all(message.role == "system" for message in messages):
        raise BadRequest("messages: send at least one message that is not an instruction (system)")
    waiting: list[ToolCall] = []
    return tuple(_read_message(f"messages[{number}]", message, waiting) for number, message in enumerate(messages))


def _read_message(place: str, message: ChatMessage, waiting: list[ToolCall]) -> Message:
    role = _ROLES.get(message.role)
    if role is None:
        raise BadRequest(f"{place}.role must be one of {', '.join(_ROLES)}")
    if message.tool_calls and role != "assistant":
        raise BadRequest(f"{place}.tool_calls: only the assistant makes calls")
    if role == "tool":
        call = _find_call(place, message, waiting)
        return Message(role, _read_content(place, message), (), call.id, call.name)
    calls = tuple(_read_call(f"{place}.{number}", call) for number, call in enumerate(message.tool_calls or ()))
    waiting += calls
    return Message(role, _read_content(place, message), calls)


def _find_call(place: str, message: ChatMessage, waiting: list[ToolCall]) -> ToolCall:
    """The first call that has no result yet, by its id or its tool's name where either is said."""
    for call in waiting:
        if message.tool_call_id in {None, "", call.id} and message.tool_name in {None, "", call.name}:
            waiting.remove(call)
            return call
    raise BadRequest(f"{place}: no call before it waits for this tool's result; send the assistant's tool_calls too")


def _read_call(name: str, call: AssistantCall) -> ToolCall:
    return ToolCall(call.id or f"call-{name}", call.function.name, encode(call.function.arguments or {}).decode())


def _read_content(place: str, message: ChatMessage) -> str | tuple[Part, ...]:
    text = message.content or ""
    images = read_images(f"{place}.images", message.images)
    thought = (ReasoningPart(message.thinking),) if message.thinking and message.role == "assistant" else ()
    return make_content((*thought, *((TextPart(text),) if text else ()), *images))


def read_images(place: str, images: Sequence[str] | None) -> tuple[Part, ...]:
    """The images of a message, or of a prompt.

    Args:
        place: the place of the list in the body.
        images: each in base64.

    Raises:
        BadRequest: one is no image.
    """
    return tuple(read_image(f"{place}[{number}]", data) for number, data in enumerate(images or ()))


def read_image(place: str, data: str) -> ImagePart:
    """The image; its type is recognized by its first bytes.

    Raises:
        BadRequest: it is no base64, or no image of a known type.
    """
    try:
        head = b64decode(data[:_HEAD_CHARACTERS], validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"{place} must be an image in base64") from None
    for magic, media_type in _MAGIC:
        if head.startswith(magic):
            return ImagePart(media_type=media_type, data=data)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return ImagePart(media_type="image/webp", data=data)
    raise BadRequest(f"{place} must be a PNG, JPEG, GIF, WebP or BMP image in base64")
