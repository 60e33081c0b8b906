"""Sessions with MCP servers that never introduce themselves, or forget: what ends, and when there is a new one."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from mcp import Client

from tests.fakes.mcp_http_server import McpHttpServer
from tests.virtual_time import in_virtual_time
from tg_base.config import ToolConfig
from tg_base.telemetry import Span, trace
from tg_flow.agent.tools import mcp_session
from tg_flow.agent.tools.mcp_session import CLOSE_TIMEOUT_SECONDS, McpOptions, McpSession
from tg_flow.agent.tools.mcp_tool import McpTool
from tg_schema import Tool
from tg_schema.errors import Unavailable

START_SECONDS = 1.0


class Servers:
    """Each server that is started, at the edge of the world."""

    def __init__(self, patch: pytest.MonkeyPatch, *, ends_after: float) -> None:
        self.started = self.running = 0
        self._ends_after = ends_after
        patch.setattr(mcp_session, "_enter", self._enter)

    async def _enter(self, options: McpOptions, stack: AsyncExitStack) -> Any:
        self.started += 1
        self.running += 1
        try:
            await asyncio.Event().wait()
        finally:
            # The SDK waits until its process is gone.
            await asyncio.sleep(self._ends_after)
            self.running -= 1


async def ask(_: object) -> None:
    """What nobody gets to."""


def test_a_server_that_is_not_waited_for_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    @in_virtual_time
    async def leave_while_it_ends() -> None:
        servers = Servers(monkeypatch, ends_after=2.0)
        session = McpSession(McpOptions(command=("silent",), start=START_SECONDS))
        for started in (1, 2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(START_SECONDS + 1.0):
                    await session.use(ask)
            assert servers.started == started
        await asyncio.sleep(CLOSE_TIMEOUT_SECONDS + 2.0)
        assert servers.running == 0

    leave_while_it_ends()


def test_who_has_waited_for_an_old_session_does_not_close_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    @in_virtual_time
    async def wait_for_both() -> None:
        servers = Servers(monkeypatch, ends_after=START_SECONDS)
        session = McpSession(McpOptions(command=("silent",), start=START_SECONDS))
        clock, ends = asyncio.get_running_loop().time, []

        async def use(after: float) -> None:
            await asyncio.sleep(after)
            with pytest.raises(Unavailable, match="did not introduce itself"):
                await session.use(ask)
            ends.append(round(clock(), 3))

        # The second one still waits for the first session when the third one opens another.
        await asyncio.gather(*map(use, (0.0, 0.5 * START_SECONDS, 1.25 * START_SECONDS)))
        assert servers.started == 2
        # Each of the sessions had its time to begin, and then to end.
        assert ends[-1] == (1.25 + 1.0 + 1.0) * START_SECONDS

    wait_for_both()


class Hanging:
    """A server that has introduced itself, and answers calls and lists only as long as it does not hang."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.started = self.running = 0
        self.hangs = False
        patch.setattr(mcp_session, "_enter", self._enter)

    async def _enter(self, options: McpOptions, stack: AsyncExitStack) -> Any:
        self.started += 1
        self.running += 1
        self.hangs = False
        stack.callback(self._end)
        return self

    def _end(self) -> None:
        self.running -= 1

    async def list_tools(self) -> int:
        """The number of the process that answers."""
        if self.hangs:
            await asyncio.Event().wait()
        return self.started


@pytest.mark.parametrize(("hangs", "started"), [(False, 1), (True, 2)])
def test_a_server_that_hangs_is_started_again_after_a_call_that_was_given_up(
    monkeypatch: pytest.MonkeyPatch, *, hangs: bool, started: int
) -> None:
    @in_virtual_time
    async def give_up() -> None:
        server = Hanging(monkeypatch)
        session = McpSession(McpOptions(command=("hanging",), start=START_SECONDS))

        async def list_again(client: Any) -> Any:
            return await client.list_tools()

        async def hang(client: Any) -> None:
            server.hangs = hangs
            await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await session.use(hang)
        await asyncio.sleep(2 * START_SECONDS)
        assert await session.use(list_again) == started
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await session.use(hang)
        # While it is being asked, too.
        await session.aclose()
        assert server.running == 0

    give_up()


async def call(client: Client) -> str:
    """The session that the server knows us by."""
    result = await client.call_tool("any", {})
    return str(result.content[0].text)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "refusal",
    [
        "Not Found",
        '{"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "Session not found"}}',
        '{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}}',
    ],
)
async def test_a_server_that_has_forgotten_the_session_gets_a_new_one(
    refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody listens there: no tool asks through the environment's proxy.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with McpHttpServer(refusal).running() as server:
        session = McpSession(McpOptions(url=server.url))
        assert [await session.use(call) for _ in range(2)] == ["session 1"] * 2
        server.sessions.clear()
        with pytest.raises(Unavailable, match="the next call starts it again"):
            await session.use(call)
        assert [await session.use(call) for _ in range(2)] == ["session 2"] * 2
        await session.aclose()


async def test_each_call_has_the_ids_of_its_own_request() -> None:
    async with McpHttpServer("Not Found").running() as server:
        session = McpSession(McpOptions(url=server.url))
        tool = McpTool(Tool("any", ""), ToolConfig(kind="mcp"), session, "any")
        spans = [Span.at_door(name, None) for name in ("r-1", "r-2")]
        for span in spans:
            trace.enter(span)
            assert [piece async for piece in tool.call({})] == ["session 1"]
        await session.aclose()
    assert server.calls == [(span.request, span.traceparent, span.traceparent) for span in spans]
