"""MCP tool -> MCP server: the server's options, and one session, which many calls share. A lost one is reopened."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import Context
from typing import Any, TypeVar

import anyio
import httpx2
import msgspec
import structlog
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED

from tg_base.telemetry import trace
from tg_flow.agent.core import ToolOptions, read_secrets
from tg_schema import TgError
from tg_schema.errors import Unavailable

log = structlog.get_logger()
T = TypeVar("T")

CLOSE_TIMEOUT_SECONDS = 5.0
"""Seconds that a server gets to exit."""

SESSION_HEADER = "mcp-session-id"
"""The header of each request in a session, for servers over HTTP with sessions (MCP 2025-11-25, Session Management)."""

_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


class McpOptions(ToolOptions, frozen=True):
    """The options of an MCP server. Exactly one of `command` and `url` must be given.

    Attributes:
        command: the program of a server that speaks over its standard input and output, and its arguments.
        url: the URL of a server that speaks streamable HTTP.
        tool: the tool's name at the server; None = all of the server's tools, each named `TABLE_TOOL`.
        env: variables added to the server's environment, which otherwise has only safe defaults.
        headers: headers of each request to `url`.
        secrets: further variables or headers with secret values, each with the variable that holds the value.
        cwd: the server's working directory.
        start: seconds that the server gets to initialize the session.
    """

    command: tuple[str, ...] = ()
    url: str | None = None
    tool: str | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    secrets: dict[str, str] = msgspec.field(default_factory=dict)
    cwd: str | None = None
    start: float = 30.0


class McpSession:
    """A session. It runs in a task of its own, because the SDK requires the task that opened a session to close it.

    Args:
        options: the server.
    """

    def __init__(self, options: McpOptions) -> None:
        self._options = options
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[Client] | None = None
        self._leave = asyncio.Event()
        self._probe: asyncio.Task[None] | None = None

    async def use(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Call `work` with the session, which is opened first if needed.

        After a cancelled call, the server must answer another request within `start`, or a new session replaces it.

        Raises:
            Unavailable: the server cannot be reached, or its session was lost; the next use opens a new one.
            ProviderAuth: a required environment variable is not set.
            MCPError: the server rejected the call.
        """
        client, task = await self._client()
        try:
            return await _while_alive(work(client), task)
        except asyncio.CancelledError:
            self._doubt(client, task)
            raise
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                raise
        except _GONE:
            pass
        await self._close(task)
        raise Unavailable("the MCP server has ended; the next call starts it again")

    async def aclose(self) -> None:
        """Close the session. The next use opens a new one."""
        if self._task is not None:
            await self._close(self._task)
        if self._probe is not None:
            await asyncio.wait([self._probe])

    def _doubt(self, client: Client, session: asyncio.Task[None]) -> None:
        """Check the server after an abandoned call: was it only slow, or does it hang, and so block all other calls?"""
        if self._task is session and (self._probe is None or self._probe.done()):
            self._probe = asyncio.create_task(self._test(client, session), name="mcp probe")

    async def _test(self, client: Client, session: asyncio.Task[None]) -> None:
        # Do not use a ping, which MCP dropped on 2026-07-28.
        asking = asyncio.ensure_future(client.list_tools())
        await asyncio.wait({asking, session}, timeout=self._options.start, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            # Any answer proves that the server works. Retrieve the result, or asyncio would log an error.
            asking.exception()
            return
        asking.cancel()
        await asyncio.wait([asking])
        if not session.done():
            log.warning("mcp.timeout", seconds=self._options.start, advice="it is started again; see options.start")
        await self._close(session)

    async def _close(self, task: asyncio.Task[None]) -> None:
        """Close this session, unless another call has already closed it and opened a new one."""
        if self._task is not task or self._opened is None:
            return
        # A session that is not open yet has nothing to close; it only waits for its server.
        seconds = CLOSE_TIMEOUT_SECONDS if self._opened.done() else 0.0
        # Forget the session first, so that a call that comes meanwhile opens a new one.
        self._task = self._opened = None
        self._leave.set()
        self._leave = asyncio.Event()
        # Use a timer: the task that closes the session may be cancelled, but the server must still end.
        end = asyncio.get_running_loop().call_later(seconds, task.cancel)
        task.add_done_callback(lambda _: end.cancel())
        await asyncio.wait([task])

    async def _client(self) -> tuple[Client, asyncio.Task[None]]:
        """The client, and the task of its session."""
        if self._task is None or self._task.done() or self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            # Use a context of its own: the session outlives the request that opens it.
            running = self._run(self._opened, self._leave)
            self._task = asyncio.create_task(running, name="mcp session", context=Context())
        task, opened = self._task, self._opened
        try:
            async with asyncio.timeout(self._options.start):
                # Shield it: several calls may wait for one session, and a cancelled one must not cancel it for all.
                return await asyncio.shield(opened), task
        except TimeoutError:
            await self._close(task)
            raise Unavailable(f"the MCP server did not introduce itself within {self._options.start:g} s") from None

    async def _run(self, opened: "asyncio.Future[Client]", leave: asyncio.Event) -> None:
        fault: TgError = Unavailable("the MCP server cannot be started or reached; check its command or url")
        try:
            async with AsyncExitStack() as stack:
                opened.set_result(await _enter(self._options, stack))
                await leave.wait()
        except TgError as error:
            fault = error
        except Exception as error:  # noqa: BLE001 - the task ends here; callers that wait get our own sentence
            log.warning("mcp.lost", error=type(error).__name__)
        finally:
            if not opened.done():
                opened.set_exception(fault)
                # Retrieve the exception: asyncio would log the error of a session that nobody awaits any more.
                opened.exception()


async def _while_alive(work: Coroutine[Any, Any, T], session: asyncio.Task[None]) -> T:
    """The result of the work, or an error if the session ends first."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait({working, session}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise anyio.ClosedResourceError
        return working.result()
    finally:
        if not working.done():
            working.cancel()
            await asyncio.wait([working])


async def _enter(options: McpOptions, stack: AsyncExitStack) -> Client:
    secrets = read_secrets(options.secrets, "the MCP server")
    if options.url is None:
        command, *arguments = options.command
        server = StdioServerParameters(command=command, args=arguments, env=options.env | secrets, cwd=options.cwd)
        return await stack.enter_async_context(Client(server, cache=None))
    timeout = httpx2.Timeout(30.0, read=300.0)
    http = httpx2.AsyncClient(
        headers=options.headers | secrets,
        timeout=timeout,
        event_hooks={"request": [_add_ids], "response": [_check_session]},
        # Tools ignore the environment's proxies and .netrc, but use its certificates (SSL_CERT_FILE).
        trust_env=False,
        verify=httpx2.create_ssl_context(),
    )
    await stack.enter_async_context(http)
    return await stack.enter_async_context(Client(streamable_http_client(options.url, http_client=http), cache=None))


async def _add_ids(request: httpx2.Request) -> None:
    # The SDK sends each request in the context of the call, so the trace is that of the call.
    request.headers.update(trace.headers())


async def _check_session(response: httpx2.Response) -> None:
    """End a session that its server has forgotten, for example after a restart.

    Raises:
        RemoteProtocolError: the server answered a request of a session with 404; MCP then requires a new session.
    """
    request = response.request
    # The SDK would only report that one call was refused, and go on using the session.
    if response.status_code == 404 and request.method == "POST" and SESSION_HEADER in request.headers:
        raise httpx2.RemoteProtocolError("the server has forgotten the session", request=request)
