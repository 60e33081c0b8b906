"""Tools and the choice among them -> the record's fields; tools that are no functions are left out, and named."""

from collections.abc import Sequence

from tg_gateway.dialects import InvalidParameter
from tg_gateway.dialects.chat import make_tool
from tg_gateway.dialects.responses.request_body import RequestBody, ToolBody, ToolChoice
from tg_schema import Tool


def split_tools(tools: Sequence[ToolBody]) -> tuple[tuple[ToolBody, ...], tuple[str, ...]]:
    """The functions, and the names of all other tools, which the vendor's own servers would run."""
    functions = tuple(tool for tool in tools if tool.type == "function")
    others = (tool for tool in tools if tool.type != "function")
    return functions, tuple(f"tools.{tool.type}.{tool.name}" if tool.name else f"tools.{tool.type}" for tool in others)


def make_tools(functions: Sequence[ToolBody]) -> tuple[Tool, ...]:
    """The record's tools; a tool is strict only if it says so.

    Raises:
        InvalidParameter: a tool has no name.
    """
    return tuple(_make_tool(tool, f"tools[{number}]") for number, tool in enumerate(functions))


def read_choice(body: RequestBody, functions: Sequence[ToolBody]) -> tuple[str | None, tuple[str, ...]]:
    """The record's `tool_choice` and `allowed_tools`: which of the tools may or must be called.

    Raises:
        InvalidParameter: the choice names a tool that there is not, or that cannot be called here.
    """
    names = {tool.name or "" for tool in functions}
    choice = body.tool_choice
    if isinstance(choice, ToolChoice):
        return _read_object(choice, names)
    if choice == "required" and not names:
        raise InvalidParameter("there is no function among the tools that could be called", "tool_choice")
    # Providers refuse a choice where there are no tools.
    return choice if names else None, ()


def _make_tool(tool: ToolBody, place: str) -> Tool:
    if not tool.name:
        raise InvalidParameter("the function has no name", f"{place}.name", "missing_required_parameter")
    return make_tool(tool.name, tool.description, tool.parameters, strict=tool.strict)


def _read_object(choice: ToolChoice, names: set[str]) -> tuple[str | None, tuple[str, ...]]:
    if choice.type == "function":
        if not choice.name or choice.name not in names:
            raise InvalidParameter("there is no function of that name among the tools", "tool_choice.name")
        return choice.name, ()
    if choice.type != "allowed_tools":
        raise InvalidParameter(
            'only functions can be called here: choose "auto", "none", "required", or an object of the type '
            '"function" or "allowed_tools"',
            "tool_choice.type",
            "unsupported_value",
        )
    listed = tuple(str(tool.get("name", "")) for tool in choice.tools or () if tool.get("type") == "function")
    if not listed or not names.issuperset(listed):
        raise InvalidParameter("name at least one function, and only those among the tools", "tool_choice.tools")
    return choice.mode or "auto", listed
