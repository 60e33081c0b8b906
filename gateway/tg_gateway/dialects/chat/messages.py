"""The messages of a chat -> turns of a request record."""

import re
from collections.abc import Sequence
from typing import Final

from tg_gateway.dialects import InvalidParameter
from tg_gateway.dialects.chat.body import AssistantCall, ChatMessage, ContentPart
from tg_schema import ImagePart, Message, TextPart, ToolCall
from tg_schema.conversation import Part, ReasoningPart, Role

_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_REFUSED: Final = {
    "audio": "no audio is kept here; send what was said as content",
    "function_call": "call functions by tool_calls",
}
_INSTRUCTIONS: Final = frozenset({"system", "developer"})
MAX_DATA_URL_HEAD = 256
"""Characters of a data URL before its data: the rest may be megabytes that must not be searched."""
_DATA_URL: Final = re.compile(r"data:(?P<type>image/[\w.+-]+)(?:;[\w.+-]+=[\w.+-]+)*;base64,", re.IGNORECASE)


def read_messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """The turns of a conversation.

    Raises:
        InvalidParameter: one is not in order, or has what no record can carry.
    """
    if all(message.role in _INSTRUCTIONS for message in messages):
        raise InvalidParameter(
            "messages: send at least one message that is not an instruction (system or developer)",
            "messages",
            "invalid_value" if messages else "missing_required_parameter",
        )
    return tuple(_read_message(f"messages[{number}]", message) for number, message in enumerate(messages))


def _read_message(place: str, message: ChatMessage) -> Message:
    role = _ROLES.get(message.role)
    if role is None:
        listed = ", ".join(_ROLES)
        raise InvalidParameter(f"{place}.role must be one of {listed}", f"{place}.role", "invalid_value")
    for name, advice in _REFUSED.items():
        if getattr(message, name) is not None:
            raise InvalidParameter(f"{place}.{name}: {advice}", f"{place}.{name}", "unsupported_parameter")
    if role == "tool" and not message.tool_call_id:
        sentence = f"{place}.tool_call_id is missing: it names the call that this is the result of"
        raise InvalidParameter(sentence, f"{place}.tool_call_id", "missing_required_parameter")
    calls = message.tool_calls or ()
    return Message(
        role,
        _read_content(place, message),
        tuple(_read_call(f"{place}.tool_calls[{number}]", call) for number, call in enumerate(calls)),
        message.tool_call_id if role == "tool" else None,
        message.name,
    )


def _read_content(place: str, message: ChatMessage) -> str | tuple[Part, ...]:
    content = message.content or message.refusal or ""
    thought = _read_reasoning(message) if message.role == "assistant" else ()
    if isinstance(content, str):
        return (*thought, *((TextPart(content),) if content else ())) if thought else content
    parts = tuple(_read_part(f"{place}.content[{number}]", part) for number, part in enumerate(content))
    # One text in a list is a text: plain peers and some models take nothing else.
    if not thought and len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return (*thought, *parts)


def _read_reasoning(message: ChatMessage) -> tuple[ReasoningPart, ...]:
    """Thinking with its proofs where they have come back; otherwise its text."""
    if message.reasoning_details:
        known = (each for each in message.reasoning_details if each.text or each.signature)
        return tuple(ReasoningPart(detail.text or "", detail.signature) for detail in known)
    return (ReasoningPart(message.reasoning_content),) if message.reasoning_content else ()


def _read_part(place: str, part: ContentPart) -> TextPart | ImagePart:
    if part.type in {"text", "refusal"}:
        text = part.text if part.type == "text" else part.refusal
        if text is None:
            raise InvalidParameter(
                f"{place}.{part.type} is missing", f"{place}.{part.type}", "missing_required_parameter"
            )
        return TextPart(text)
    if part.type == "image_url":
        image = part.image_url
        return read_image(f"{place}.image_url", image if isinstance(image, str) else image.url if image else "")
    sentence = f"{place}: parts of this type cannot be passed on; send text or image_url"
    raise InvalidParameter(sentence, f"{place}.type", "unsupported_value")


def read_image(place: str, url: str) -> ImagePart:
    """The image behind a URL, or in it.

    Raises:
        InvalidParameter: it is neither.
    """
    if url.startswith(("https://", "http://")):
        return ImagePart(url=url)
    # An image in a URL may have megabytes: the expression looks at its head alone.
    data_url = _DATA_URL.match(url, 0, MAX_DATA_URL_HEAD)
    if data_url is None:
        sentence = f"{place} must be an http or https URL, or a data URL such as data:image/png;base64,..."
        raise InvalidParameter(sentence, place, "invalid_value")
    return ImagePart(media_type=data_url["type"].lower(), data=url[data_url.end() :])


def _read_call(place: str, call: AssistantCall) -> ToolCall:
    if call.type != "function" or call.function is None:
        raise InvalidParameter(f"{place} must be the call of a function", f"{place}.type", "unsupported_value")
    signature = call.extra_content.tokengrid.signature if call.extra_content else None
    return ToolCall(call.id, call.function.name, call.function.arguments, signature)
