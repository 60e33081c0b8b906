"""Configuration -> agent: opens the tools of one flow; each kind is an entry point, imported when a table names it."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import EntryPoint

from tg_base.config import TOOL_KINDS, Findings, ToolConfig, read_options
from tg_base.runtime import explaining_absence, find_entry_point, start_daemon_thread
from tg_flow.agent.core import AgentTool, ToolContext, compile_schema
from tg_schema import TgError


@asynccontextmanager
async def open_tools(
    context: ToolContext, names: Iterable[str], findings: Findings
) -> AsyncIterator[tuple[AgentTool, ...]]:
    """The tools that some tables of the configuration describe, while the block runs.

    A tool that cannot be opened becomes a finding, with its position in the file.
    """
    async with AsyncExitStack() as stack:
        tools: list[AgentTool] = []
        for name in names:
            with findings.collect():
                for tool in await _open(context, name):
                    stack.push_async_callback(tool.aclose)
                    tools.append(tool)
        yield tuple(tools)


async def _open(context: ToolContext, name: str) -> tuple[AgentTool, ...]:
    table = context.config.tools[name]
    tools: tuple[AgentTool, ...] = ()
    try:
        tools = await _make(context, name, table)
        for tool in tools:
            # Compile here, so that the error for a wrong schema can name its position in the file.
            compile_schema(tool)
    except TgError as error:
        for tool in tools:
            await tool.aclose()
        raise context.config.locate(error, "tools", name) from None
    return tools


async def _make(context: ToolContext, name: str, table: ToolConfig) -> tuple[AgentTool, ...]:
    owner = f'a tool of kind "{table.kind}"'

    def load() -> tuple[EntryPoint, type[AgentTool]]:
        point = find_entry_point(TOOL_KINDS, table.kind, "kind of tool", "module:Class")
        with explaining_absence(owner, point, "kind"):
            return point, point.load()

    try:
        point, kind = await start_daemon_thread(load, f"import {table.kind}")
        options = read_options(table.options, kind.Options, owner)
        with explaining_absence(owner, point, "kind"):
            return await kind.open(name, table, options, context)
    except TgError as error:
        raise (error.at("options") if error.option and error.option != ("kind",) else error) from None
