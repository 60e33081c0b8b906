"""The messages and the tools of a chat -> turns and tools of a request record."""

import re
from collections.abc import Sequence, Set
from typing import Any, Final

import msgspec

from tg_gateway.dialects import InvalidParameter
from tg_gateway.dialects.chat.body import (
    AllowedTools,
    AssistantCall,
    ChatMessage,
    ContentPart,
    Function,
    FunctionTool,
    ToolChoice,
)
from tg_schema import ImagePart, Message, TextPart, Tool, ToolCall
from tg_schema.conversation import Part, ReasoningPart, Role, make_content

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
        InvalidParameter: a message is malformed, or has a part that no record can carry.
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
        raise InvalidParameter(f"{place}.role must be one of {', '.join(_ROLES)}", f"{place}.role", "invalid_value")
    for name, advice in _REFUSED.items():
        if getattr(message, name) is not None:
            raise InvalidParameter(f"{place}.{name}: {advice}", f"{place}.{name}", "unsupported_parameter")
    if role == "tool" and not message.tool_call_id:
        raise InvalidParameter(
            f"{place}.tool_call_id is missing: it names the call that this is the result of",
            f"{place}.tool_call_id",
            "missing_required_parameter",
        )
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
        return make_content((*thought, *((TextPart(content),) if content else ())))
    return make_content((*thought, *(_read_part(f"{place}.content[{n}]", part) for n, part in enumerate(content))))


def _read_reasoning(message: ChatMessage) -> tuple[ReasoningPart, ...]:
    """Thinking with its proofs if the client sent them back; otherwise its text."""
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
    raise InvalidParameter(
        f"{place}: parts of this type cannot be passed on; send text or image_url", f"{place}.type", "unsupported_value"
    )


def read_image(place: str, url: str) -> ImagePart:
    """The image at a URL, or in a data URL.

    Raises:
        InvalidParameter: it is neither.
    """
    if url.startswith(("https://", "http://")):
        return ImagePart(url=url)
    # An image in a URL may have megabytes: the expression looks at its head alone.
    data_url = _DATA_URL.match(url, 0, MAX_DATA_URL_HEAD)
    if data_url is None:
        raise InvalidParameter(
            f"{place} must be an http or https URL, or a data URL such as data:image/png;base64,...",
            place,
            "invalid_value",
        )
    return ImagePart(media_type=data_url["type"].lower(), data=url[data_url.end() :])


def _read_call(place: str, call: AssistantCall) -> ToolCall:
    if call.type != "function" or call.function is None:
        raise InvalidParameter(f"{place} must be the call of a function", f"{place}.type", "unsupported_value")
    signature = call.extra_content.tokengrid.signature if call.extra_content else None
    return ToolCall(call.id, call.function.name, call.function.arguments, signature)


WORDS = frozenset({"auto", "none", "required"})
"""Choices that name no tool."""


def read_tools(tools: Sequence[FunctionTool]) -> tuple[Tool, ...]:
    """The functions that the model may call.

    Raises:
        InvalidParameter: one is no function.
    """
    functions = (_function_of(f"tools[{number}]", tool) for number, tool in enumerate(tools))
    return tuple(make_tool(each.name, each.description, each.parameters, strict=each.strict) for each in functions)


def make_tool(
    name: str, description: str | None, parameters: dict[str, Any] | None, *, strict: bool | None = None
) -> Tool:
    """A function that the model may call. Without parameters it has an object without properties."""
    tool = Tool(name, description or "", strict=bool(strict))
    return tool if parameters is None else msgspec.structs.replace(tool, parameters=parameters)


def _function_of(place: str, tool: FunctionTool) -> Function:
    if tool.type != "function":
        raise InvalidParameter(
            f"{place}: tools of this type cannot be passed on; send functions", f"{place}.type", "unsupported_value"
        )
    if tool.function is None:
        raise InvalidParameter(f"{place}.function is missing", f"{place}.function", "missing_required_parameter")
    return tool.function


def read_tool_choice(choice: str | ToolChoice | None, tools: Sequence[Tool]) -> tuple[str | None, tuple[str, ...]]:
    """The record's `tool_choice` and `allowed_tools`.

    Raises:
        InvalidParameter: the choice is malformed, or names a tool that was not offered.
    """
    if choice is None or isinstance(choice, str):
        if choice is not None and choice not in WORDS:
            raise InvalidParameter('tool_choice must be "auto", "none", "required" or an object', "tool_choice")
        return choice, ()
    if choice.type == "function" and choice.function is not None:
        return _known(choice.function.name, {tool.name for tool in tools}, "tool_choice.function.name"), ()
    if choice.type == "allowed_tools" and choice.allowed_tools is not None:
        return choice.allowed_tools.mode, _read_allowed(choice.allowed_tools, tools)
    raise InvalidParameter(
        "tool_choice must have the type function, with `function`, or allowed_tools, with `allowed_tools`",
        "tool_choice.type",
        "unsupported_value",
    )


def _read_allowed(allowed: AllowedTools, tools: Sequence[Tool]) -> tuple[str, ...]:
    place = "tool_choice.allowed_tools.tools"
    if not allowed.tools:
        raise InvalidParameter(f'{place} must name at least one tool; to allow none, send "none" as tool_choice', place)
    functions = (_function_of(f"{place}[{number}]", tool) for number, tool in enumerate(allowed.tools))
    names = {tool.name for tool in tools}
    return tuple(_known(function.name, names, place) for function in functions)


def _known(name: str, names: Set[str], place: str) -> str:
    if name not in names:
        raise InvalidParameter(f"{place}: this is the name of none of the tools", place, "invalid_value")
    return name
