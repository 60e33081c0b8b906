"""Agent -> MCP server: the server's tools, called through a persistent session."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any, Self, cast

from mcp import Client, MCPError, types
from typing_extensions import override

from tg_base.config import ToolConfig
from tg_base.telemetry import trace
from tg_flow.agent.core import AgentTool, Piece, ToolContext, declare
from tg_flow.agent.tools.mcp_session import McpOptions, McpSession
from tg_schema import TgError, Tool, encode
from tg_schema.errors import BadRequest, NotFound, PeerError

MAX_PAGES = 100
"""Most pages of a server's tool list that are read."""

MAX_WAITING_PIECES = 16
"""Progress reports buffered for a slow reader; further ones are dropped."""

_STRANGE = re.compile(r"[^A-Za-z0-9_-]")


class McpTool(AgentTool):
    """One tool of a server. Progress reports are pieces of the observation."""

    Options = McpOptions

    def __init__(self, declaration: Tool, table: ToolConfig, session: McpSession, remote: str) -> None:
        super().__init__(declaration, table)
        self._session = session
        self._remote = remote

    @classmethod
    @override
    async def open(cls, name: str, table: ToolConfig, options: McpOptions, context: ToolContext) -> tuple[Self, ...]:
        if bool(options.command) == (options.url is not None):
            raise BadRequest('an MCP server needs either command = ["PROGRAM", ...] or url = "https://..."')
        session = McpSession(options)
        # No request is needed now: the first call will start or connect the server.
        if options.tool is not None and table.arguments is not None:
            return (cls(declare(name, table, "", {}), table, session, options.tool),)
        async with AsyncExitStack() as failed:
            failed.push_async_callback(session.aclose)
            try:
                tools = _choose(await session.use(_list_tools), name, table, options.tool)
            except MCPError:
                raise PeerError("the MCP server does not list its tools").at(_server(options)) from None
            except TgError as error:
                raise (error if error.option else error.at(_server(options))) from None
            failed.pop_all()
        return tuple(cls(declaration, table, session, remote) for declaration, remote in tools)

    @override
    async def call(self, arguments: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        reports: deque[str] = deque()
        woken = asyncio.Event()

        async def report(progress: float, total: float | None, message: str | None) -> None:
            if len(reports) < MAX_WAITING_PIECES:
                reports.append(_progress(progress, total, message))
                woken.set()

        async def ask(client: Client) -> types.CallToolResult:
            # A server that does not speak HTTP finds the trace here (SEP-414).
            found = {name: value for name, value in trace.headers().items() if name == "traceparent"}
            meta = cast("types.RequestParamsMeta", found) if found else None
            return await client.call_tool(self._remote, arguments, progress_callback=report, meta=meta)

        task = asyncio.ensure_future(self._session.use(ask))
        # Wake the reader at the end too: if a call has no progress reports, nothing else would.
        task.add_done_callback(lambda _: woken.set())
        try:
            while reports or not task.done():
                await woken.wait()
                woken.clear()
                while reports:
                    yield reports.popleft()
            result = task.result()
        except MCPError:
            raise PeerError("the MCP server refused the call") from None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        yield _text(result)
        if result.is_error:
            raise PeerError("the tool says that it failed")

    @override
    async def aclose(self) -> None:
        await self._session.aclose()


def _server(options: McpOptions) -> str:
    return "command" if options.command else "url"


async def _list_tools(client: Client) -> list[types.Tool]:
    tools: list[types.Tool] = []
    cursor: str | None = None
    # The number of pages is bounded, because a cursor that leads back to itself would never end.
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return tools


def _choose(listed: list[types.Tool], name: str, table: ToolConfig, wanted: str | None) -> list[tuple[Tool, str]]:
    """Each tool's declaration for the model, and its name at the server: all listed tools, or the wanted one."""
    if wanted is None:
        return [(_declare(f"{name}_{tool.name}", table, tool), tool.name) for tool in listed]
    for tool in listed:
        if tool.name == wanted:
            return [(_declare(name, table, tool), tool.name)]
    known = ", ".join(tool.name for tool in listed) or "none"
    raise NotFound(f'the MCP server has no tool "{wanted}"; it has {known}').at("tool")


def _declare(name: str, table: ToolConfig, tool: types.Tool) -> Tool:
    # OpenAI accepts only these characters in a function's name, and at most 64 of them.
    return declare(_STRANGE.sub("_", name)[:64], table, tool.description or tool.title or "", tool.input_schema)


def _progress(progress: float, total: float | None, message: str | None) -> str:
    far = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
    return f"{message or f'progress: {far}'}\n"


def _text(result: types.CallToolResult) -> str:
    texts = [_show(block) for block in result.content]
    if not texts and result.structured_content is not None:
        return encode(result.structured_content).decode()
    return "\n".join(texts)


def _show(block: types.ContentBlock) -> str:
    """Text unchanged, a link's URI, and of other content only its type."""
    match block:
        case types.TextContent(text=text) | types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return text
        case types.ResourceLink(name=name, uri=uri):
            return f"{name}: {uri}"
    return f"({block.type})"
