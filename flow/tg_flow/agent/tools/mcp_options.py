"""Configuration -> MCP: where a server is and which of its tools to take."""

import msgspec

from tg_flow.agent.core import ToolOptions
from tg_schema.errors import BadRequest


class McpOptions(ToolOptions, frozen=True):
    """Exactly one of `command` and `url`.

    Attributes:
        command: what starts a server that speaks over its standard input and output, word by word.
        url: the address of one that speaks streamable HTTP.
        tool: its name at the server; None = all of the server's tools, each as `TABLE_TOOL`.
        env: the server's environment besides a safe default; `headers`: sent with each request to `url`.
        secrets: more of these, whose values stand in environment variables, by the variable's name.
        cwd: where the server runs.
        start: seconds for it to introduce itself.
    """

    command: tuple[str, ...] = ()
    url: str | None = None
    tool: str | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    secrets: dict[str, str] = msgspec.field(default_factory=dict)
    cwd: str | None = None
    start: float = 30.0


def check(options: McpOptions) -> None:
    """Refuse what names no server.

    Raises:
        BadRequest: neither or both of command and url.
    """
    if bool(options.command) == (options.url is not None):
        raise BadRequest('an MCP server needs either command = ["PROGRAM", ...] or url = "https://..."')
