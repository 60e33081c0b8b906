"""Configuration -> MCP: the address of a server, and which of its tools to use."""

import msgspec

from tg_flow.agent.core import ToolOptions
from tg_schema.errors import BadRequest


class McpOptions(ToolOptions, frozen=True):
    """Exactly one of `command` and `url`.

    Attributes:
        command: starts a server that speaks over its standard input and output; one argument for each element.
        url: the address of a server that speaks streamable HTTP.
        tool: the tool's name at the server; None = all of the server's tools, each as `TABLE_TOOL`.
        env: added to the server's environment, which has only safe defaults.
        headers: sent with each request to `url`.
        secrets: more of these with secret values, each with the name of the environment variable that holds it.
        cwd: the server's working directory.
        start: seconds that it has to introduce itself.
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
    """Check that the options name one server.

    Raises:
        BadRequest: neither or both of command and url.
    """
    if bool(options.command) == (options.url is not None):
        raise BadRequest('an MCP server needs either command = ["PROGRAM", ...] or url = "https://..."')
