"""Configuration -> agent: the tools of one flow, opened, and which of them can be called when."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec

from tg_base.config import ToolConfig
from tg_flow.agent.agent_tool import AgentTool, Reach
from tg_flow.prompt.object_schema import BadSchema, ObjectSchema
from tg_schema.errors import BadRequest, TgError, Unavailable

ALL = "*"
DEFAULT_GROUP = "default"
FIRST_STATE = "undefined"


@dataclass(frozen=True, slots=True)
class Row:
    """One kind: where its class is, and the extra of `tg-flow` that brings what it needs."""

    module: str
    name: str
    extra: str = ""


KINDS: dict[str, Row] = {
    "prompt": Row("tg_flow.agent.tools.prompt_tool", "PromptTool"),
    "text-completion": Row("tg_flow.agent.tools.completion_tool", "CompletionTool"),
    "python": Row("tg_flow.agent.tools.python_tool", "PythonTool"),
    "http": Row("tg_flow.agent.tools.http_tool", "HttpTool", "http"),
    "mcp": Row("tg_flow.agent.tools.mcp_tool", "McpTool", "mcp"),
    "service": Row("tg_flow.agent.tools.service_tool", "ServiceTool"),
}


class Toolbox:
    """Tools by name, with their compiled schemas.

    Raises:
        BadRequest: two have the same name, or a schema is wrong.
    """

    def __init__(self, tools: Iterable[AgentTool] = ()) -> None:
        self._tools: dict[str, AgentTool] = {}
        self._schemas: dict[str, ObjectSchema] = {}
        for tool in tools:
            name = tool.declaration.name
            if name in self._tools:
                raise BadRequest(f'two tools have the name "{name}"; rename one')
            self._tools[name] = tool
            self._schemas[name] = _compiled(tool)

    @property
    def next_states(self) -> dict[str, str | None]:
        """By tool, the dialog's state after it was called."""
        return {name: tool.table.state for name, tool in self._tools.items()}

    def available(self, groups: Iterable[str] | None, state: str) -> dict[str, AgentTool]:
        """The tools that a request with these groups can call in this state."""
        wanted = frozenset((DEFAULT_GROUP,) if groups is None else groups)
        return {name: tool for name, tool in self._tools.items() if _in_reach(tool.table, wanted, state)}

    def fault(self, name: str, arguments: dict[str, Any]) -> str | None:
        """What is wrong with the arguments, for the model; None = nothing."""
        return self._schemas[name].fault(arguments)


def _in_reach(table: ToolConfig, groups: frozenset[str], state: str) -> bool:
    in_group = ALL in groups or not groups.isdisjoint(table.group or (DEFAULT_GROUP,))
    states = table.applicable_states or (ALL,)
    return in_group and (ALL in states or state in states)


def _compiled(tool: AgentTool) -> ObjectSchema:
    try:
        return ObjectSchema(tool.declaration.parameters)
    except BadSchema as bad:
        raise BadRequest(f'the arguments of the tool "{tool.declaration.name}": {bad.message}') from None


@asynccontextmanager
async def opened_tools(reach: Reach, names: Iterable[str]) -> AsyncIterator[tuple[AgentTool, ...]]:
    """The tools that some tables of the configuration describe, while the block runs.

    Raises:
        TgError: one cannot be made ready; the message has its place in the file.
    """
    async with AsyncExitStack() as stack:
        tools: list[AgentTool] = []
        for name in names:
            for tool in await _opened(reach, name):
                stack.push_async_callback(tool.aclose)
                tools.append(tool)
        yield tuple(tools)


async def _opened(reach: Reach, name: str) -> tuple[AgentTool, ...]:
    table = reach.config.tools[name]
    where = reach.config.where("tools", name)
    row = KINDS[table.kind]
    try:
        kind: type[AgentTool] = getattr(await asyncio.to_thread(import_module, row.module), row.name)
        tools = await kind.open(name, table, msgspec.convert(table.options, kind.Options), reach)
    except msgspec.ValidationError as error:
        raise BadRequest(f'{where}: a tool of kind "{table.kind}": {error}') from None
    except ModuleNotFoundError as error:
        if not row.extra or (error.name or "").startswith("tg_"):
            raise
        raise Unavailable(
            f'{where}: a tool of kind "{table.kind}" needs a package that is not installed; '
            f'run: pip install "tg-flow[{row.extra}]"'
        ) from None
    except TgError as error:
        raise type(error)(f"{where}: {error.message}") from None
    for tool in tools:
        _compiled(tool)
    return tools
