"""The tools of a chat, and which of them may or must be called -> fields of a request record."""

from collections.abc import Sequence, Set
from typing import Any

import msgspec

from tg_gateway.dialects import InvalidParameter
from tg_gateway.dialects.chat.body import AllowedTools, Function, FunctionTool, ToolChoice
from tg_schema import Tool

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
        sentence = f"{place}: tools of this type cannot be passed on; send functions"
        raise InvalidParameter(sentence, f"{place}.type", "unsupported_value")
    if tool.function is None:
        raise InvalidParameter(f"{place}.function is missing", f"{place}.function", "missing_required_parameter")
    return tool.function


def read_tool_choice(choice: str | ToolChoice | None, tools: Sequence[Tool]) -> tuple[str | None, tuple[str, ...]]:
    """The record's `tool_choice` and `allowed_tools`.

    Raises:
        InvalidParameter: the choice is none, or names a tool that is not there.
    """
    if choice is None or isinstance(choice, str):
        if choice is not None and choice not in WORDS:
            raise InvalidParameter('tool_choice must be "auto", "none", "required" or an object', "tool_choice")
        return choice, ()
    if choice.type == "function" and choice.function is not None:
        return _known(choice.function.name, {tool.name for tool in tools}, "tool_choice.function.name"), ()
    if choice.type == "allowed_tools" and choice.allowed_tools is not None:
        return choice.allowed_tools.mode, _read_allowed(choice.allowed_tools, tools)
    sentence = "tool_choice must have the type function, with `function`, or allowed_tools, with `allowed_tools`"
    raise InvalidParameter(sentence, "tool_choice.type", "unsupported_value")


def _read_allowed(allowed: AllowedTools, tools: Sequence[Tool]) -> tuple[str, ...]:
    place = "tool_choice.allowed_tools.tools"
    if not allowed.tools:
        sentence = f'{place} must name at least one tool; to allow none, send "none" as tool_choice'
        raise InvalidParameter(sentence, place)
    functions = (_function_of(f"{place}[{number}]", tool) for number, tool in enumerate(allowed.tools))
    names = {tool.name for tool in tools}
    return tuple(_known(function.name, names, place) for function in functions)


def _known(name: str, names: Set[str], place: str) -> str:
    if name not in names:
        raise InvalidParameter(f"{place}: this is the name of none of the tools", place, "invalid_value")
    return name
