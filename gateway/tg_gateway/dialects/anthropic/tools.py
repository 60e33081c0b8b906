"""Tools of a request -> our tools; those that Anthropic's servers run, or that have fields of its own, stay foreign."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tg_gateway.dialects.anthropic.blocks import MAX_KIND_CHARACTERS, mark_of
from tg_gateway.dialects.anthropic.body import CacheControl, ToolChoice
from tg_schema import Tool, decode
from tg_schema.errors import BadRequest

_CUSTOM: Final = frozenset({None, "custom"})
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


class _Kind(msgspec.Struct, frozen=True):
    type: str | None = None


class _Tool(msgspec.Struct, frozen=True):
    name: str
    input_schema: dict[str, Any]
    type: str | None = None
    description: str | None = None
    strict: bool | None = None
    cache_control: CacheControl | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """What a request offers.

    Attributes:
        tools: functions of the client.
        foreign: tools that go to Anthropic's API as they came.
        ignored: fields of functions that their model's provider does not know.
    """

    tools: tuple[Tool, ...] = ()
    foreign: tuple[dict[str, Any], ...] = ()
    ignored: tuple[str, ...] = ()


def read_tools(given: Iterable[msgspec.Raw], *, passes_foreign: bool | None) -> Tools:
    """The tools of a request.

    Args:
        given: their JSON.
        passes_foreign: whether the model's provider takes foreign ones; None = nobody knows yet.

    Raises:
        BadRequest: a tool lacks a field or has a wrong one, or the model's provider cannot have it.
    """
    tools, foreign, ignored = [], [], dict[str, None]()
    for number, raw in enumerate(given):
        place = f"tools.{number}"
        try:
            # The kind alone at first: a tool of Anthropic's servers has other fields, and would be refused for them.
            kind = decode(_Kind, bytes(raw)).type
            if kind not in _CUSTOM and passes_foreign is False:
                raise BadRequest(f"the model has no tools of type {str(kind)[:MAX_KIND_CHARACTERS]!r}; leave it out")
            fields = decode(dict[str, msgspec.Raw], bytes(raw)) if kind in _CUSTOM else ()
            unknown = [name for name in fields if name not in _Tool.__struct_fields__]
            if kind not in _CUSTOM or (unknown and passes_foreign):
                foreign.append(decode(dict[str, Any], bytes(raw)))
            else:
                tools.append(_convert(decode(_Tool, bytes(raw))))
                ignored |= dict.fromkeys(f"tools.{name}" for name in unknown)
        except BadRequest as error:
            raise BadRequest(f"{place}: {error.message}") from None
    return Tools(tuple(tools), tuple(foreign), tuple(ignored))


def read_choice(choice: ToolChoice | None) -> str | None:
    """Which tool must be called, as our records say it.

    Raises:
        BadRequest: a tool must be called, but none is named.
    """
    if choice is None:
        return None
    if choice.type == "tool":
        if not choice.name:
            raise BadRequest("tool_choice.name is missing: name the tool that must be called")
        return choice.name
    return _CHOICES[choice.type]


def is_foreign_choice(choice: str | None, tools: Tools) -> bool:
    """Whether the tool that must be called can be a foreign one alone."""
    if not tools.foreign or choice in {None, "auto", "none"}:
        return False
    return not tools.tools if choice == "required" else choice not in {tool.name for tool in tools.tools}


def _convert(tool: _Tool) -> Tool:
    mark = mark_of(tool.cache_control)
    return Tool(tool.name, tool.description or "", tool.input_schema, strict=bool(tool.strict), cache=mark)
