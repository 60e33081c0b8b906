"""Agent -> Python callable: a function, a coroutine function, or an async generator that yields text."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Self

import msgspec
from typing_extensions import override

from tg_base.config import ToolConfig
from tg_base.runtime import load_function, start_daemon_thread
from tg_flow.agent.core import AgentTool, Piece, ToolContext, ToolOptions, declare
from tg_schema import TgError, Tool
from tg_schema.errors import BadRequest, Unavailable

ENTRY_POINT_GROUP = "tokengrid.tools"
"""The entry point group with which packages offer tools."""

MAX_CONCURRENT_CALLS = 16
"""Most threads of one tool. The thread of an abandoned call counts until its function returns."""


class PythonOptions(ToolOptions, frozen=True):
    """`function`: "module:function", or the name of an entry point; default: the tool's name."""

    function: str | None = None


class PythonTool(AgentTool):
    """A Python function as a tool. Its signature and docstring give schema and description, unless the table does.

    A blocking function runs in a daemon thread of its own. It cannot be stopped, and may never return. After a cancel,
    and when the process exits, nobody waits for it.
    """

    Options = PythonOptions

    def __init__(self, declaration: Tool, table: ToolConfig, function: Callable[..., Any]) -> None:
        super().__init__(declaration, table)
        self._function = function
        self._arguments = _arguments_of(function)
        self._threads = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

    @classmethod
    @override
    async def open(cls, name: str, table: ToolConfig, options: PythonOptions, context: ToolContext) -> tuple[Self, ...]:
        # Use a daemon thread: importing a foreign module may do anything, and must not keep the process from exiting.
        function = await start_daemon_thread(lambda: _load(options.function or name), f"import {name}")
        schema = _schema_of(_arguments_of(function))
        return (cls(declare(name, table, inspect.getdoc(function) or "", schema), table, function),)

    @override
    async def call(self, arguments: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        try:
            values = msgspec.structs.asdict(msgspec.convert(arguments, self._arguments))
        except msgspec.ValidationError as error:
            raise BadRequest(f"the arguments do not fit: {error}") from None
        if inspect.isasyncgenfunction(self._function):
            async with aclosing(self._function(**values)) as pieces:
                async for piece in pieces:
                    yield text_of(piece)
        elif inspect.iscoroutinefunction(self._function):
            yield text_of(await self._function(**values))
        else:
            yield text_of(await self._run(lambda: self._function(**values)))

    async def _run(self, function: Callable[[], Any]) -> Any:
        name = self.declaration.name
        if self._threads.locked():
            raise Unavailable(f"{MAX_CONCURRENT_CALLS} earlier calls of {name} have not come back; ask later")
        await self._threads.acquire()
        result = start_daemon_thread(function, f"tool {name}")
        result.add_done_callback(lambda _: self._threads.release())
        # Shield it: if it were cancelled together with this wait, it would count as returned while its thread goes on.
        return await asyncio.shield(result)


def text_of(value: Any) -> str:
    """A result as text for the model: a string unchanged, everything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _load(function: str) -> Callable[..., Any]:
    try:
        return load_function(ENTRY_POINT_GROUP, function, "function")
    except TgError as error:
        raise error.at("function") from None


def _arguments_of(function: Callable[..., Any]) -> type[msgspec.Struct]:
    """A record type whose fields are the function's parameters."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    try:
        signature = inspect.signature(function, eval_str=True)
    except (ValueError, NameError):
        raise BadRequest("the function has no readable signature; wrap it in one that has").at("function") from None
    for name, parameter in signature.parameters.items():
        if parameter.kind in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY}:
            sentence = f'the parameter "{name}" of the function cannot be given by name; a tool needs named parameters'
            raise BadRequest(sentence).at("function")
        kind = Any if parameter.annotation is parameter.empty else parameter.annotation
        field = (name, kind) if parameter.default is parameter.empty else (name, kind, parameter.default)
        fields.append(field)
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _schema_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    schema = msgspec.json.schema(arguments)
    definition: dict[str, Any] = schema["$defs"].pop("Arguments")
    del definition["title"]
    return definition | ({"$defs": schema["$defs"]} if schema["$defs"] else {})
