"""A tiny MCP server, made with the official SDK: python -m tests.fakes.mcp_server [PORT]; without a port over stdio."""

import os
import sys

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

server = MCPServer("tiny")
_counted = 0


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def count() -> str:
    """How often it was called in this process, and which process that is."""
    global _counted  # noqa: PLW0603 - the point is what a kept session remembers
    _counted += 1
    return f"{_counted} of {os.getpid()}"


@server.tool()
async def walk(steps: int, ctx: Context) -> str:
    """Walks, and says how far it has come."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
    return "there"


@server.tool()
async def hang(file: str) -> str:
    """Never comes back; when it is told to stop, it writes so into a file."""
    path = anyio.Path(file)
    await path.write_text("started")
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await path.write_text("stopped")
    return ""


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("no luck")


@server.tool()
def show() -> list[TextContent | EmbeddedResource | ResourceLink | ImageContent]:
    """Answers with every kind of content."""
    return [
        TextContent(type="text", text="a text"),
        EmbeddedResource(type="resource", resource=TextResourceContents(uri="note://1", text="a note")),
        EmbeddedResource(type="resource", resource=BlobResourceContents(uri="note://2", blob="AAAA")),
        ResourceLink(type="resource_link", uri="note://3", name="another"),
        ImageContent(type="image", data="AAAA", mime_type="image/png"),
    ]


@server.tool()
def leave() -> str:
    """Ends the server."""
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", port=int(sys.argv[1]))
    else:
        server.run(transport="stdio")
