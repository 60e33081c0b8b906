"""Configuration -> agent: opens the tools of one flow; each kind is a row, imported when a table names it."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module

from tg_base.config import Findings, ToolConfig, ToolKindName, read_options
from tg_base.runtime import start_daemon_thread
from tg_flow.agent.core import AgentTool, ToolContext, compile_schema
from tg_schema import TgError
from tg_schema.errors import Unavailable


@dataclass(frozen=True, slots=True)
class ToolKind:
    """One kind: where its class is, and the extra of `tokengrid-flow` that brings what it needs."""

    module: str
    name: str
    extra: str = ""


KINDS: dict[ToolKindName, ToolKind] = {
    "prompt": ToolKind("tg_flow.agent.tools.prompt_tool", "PromptTool"),
    "text-completion": ToolKind("tg_flow.agent.tools.completion_tool", "CompletionTool"),
    "python": ToolKind("tg_flow.agent.tools.python_tool", "PythonTool"),
    "http": ToolKind("tg_flow.agent.tools.http_tool", "HttpTool", "http"),
    "mcp": ToolKind("tg_flow.agent.tools.mcp_tool", "McpTool", "mcp"),
    "service": ToolKind("tg_flow.agent.tools.service_tool", "ServiceTool"),
}


@asynccontextmanager
async def open_tools(
    context: ToolContext, names: Iterable[str], findings: Findings
) -> AsyncIterator[tuple[AgentTool, ...]]:
    """The tools that some tables of the configuration describe, while the block runs.

    One that cannot be made ready is a finding, with its place in the file.
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
            # Compile here, where the error for a wrong schema can name its place in the file.
            compile_schema(tool)
    except TgError as error:
        for tool in tools:
            await tool.aclose()
        raise context.config.locate(error, "tools", name) from None
    return tools


async def _make(context: ToolContext, name: str, table: ToolConfig) -> tuple[AgentTool, ...]:
    row, owner = KINDS[table.kind], f'a tool of kind "{table.kind}"'
    try:
        module = await start_daemon_thread(lambda: import_module(row.module), f"import {row.module}")
        kind: type[AgentTool] = getattr(module, row.name)
        options = read_options(table.options, kind.Options, owner)
        return await kind.open(name, table, options, context)
    except ModuleNotFoundError as error:
        if not row.extra or (error.name or "").startswith("tg_"):
            raise
        install = f'run: pip install "tokengrid-flow[{row.extra}]"'
        raise Unavailable(f"{owner} needs a package that is not installed; {install}").at("kind") from None
    except TgError as error:
        raise (error.at("options") if error.option else error) from None
