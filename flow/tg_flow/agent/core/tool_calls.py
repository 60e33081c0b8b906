"""Loop -> tools -> loop: concurrent calls, each with a time limit, and their pieces as they arrive."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, NamedTuple

import structlog

from tg_base.runtime import running, translate_defects
from tg_base.telemetry import Spanning, span_names
from tg_flow.agent.core.tool import AgentTool, Piece
from tg_schema import TgError
from tg_schema.errors import Internal, Timeout

log = structlog.get_logger()

MAX_WAITING_PIECES = 16
"""Pieces buffered for a slow reader. When the buffer is full, the tools wait."""

MAX_CONCURRENT_CALLS = 16
"""Calls of one turn that run concurrently; further calls wait."""

MAX_OBSERVATION_CHARACTERS = 100_000
"""Most characters of one observation. The rest is dropped, and the model is told so."""


class CallFailed(NamedTuple):
    """The call failed; the text is for the model."""

    text: str


class CallEnded(NamedTuple):
    """The call has ended."""


class PreparedCall(NamedTuple):
    """A call with arguments that satisfy the tool's schema."""

    tool: AgentTool
    arguments: dict[str, Any]


Outcome = Piece | CallFailed | CallEnded
_Queue = asyncio.Queue[tuple[int, Outcome]]


async def run_concurrently(calls: Sequence[PreparedCall], seconds: float) -> AsyncGenerator[tuple[int, Outcome], None]:
    """Run all calls for at most `seconds`. Yield each piece with its call's index, and a `CallEnded` for each call.

    Closing the generator early cancels the calls.
    """
    end = asyncio.get_running_loop().time() + seconds
    queue: _Queue = asyncio.Queue(MAX_WAITING_PIECES)
    turns = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
    async with AsyncExitStack() as stack:
        for index, call in enumerate(calls):
            await stack.enter_async_context(running(_in_turn(turns, index, call, end, queue)))
        left = len(calls)
        while left:
            index, outcome = await queue.get()
            left -= isinstance(outcome, CallEnded)
            yield index, outcome


async def _in_turn(turns: asyncio.Semaphore, index: int, call: PreparedCall, end: float, queue: _Queue) -> None:
    async with turns:
        seconds = end - asyncio.get_running_loop().time()
        if seconds > 0:
            await _run(index, call, seconds, queue)
        else:
            await queue.put((index, CallFailed("there was no time left for it")))
            await queue.put((index, CallEnded()))


async def _run(index: int, call: PreparedCall, seconds: float, queue: _Queue) -> None:
    name, limit = call.tool.declaration.name, min(call.tool.table.timeout, seconds)
    failure: str | None = None
    about = {span_names.OPERATION: span_names.EXECUTE_TOOL, span_names.TOOL_NAME: name}
    try:
        with (
            Spanning(f"{span_names.EXECUTE_TOOL} {name}", "internal", about),
            translate_defects(Internal, "the tool failed", "tool.failed", log.bind(tool=name)),
        ):
            await _forward(index, call, limit, queue)
    except TgError as error:
        failure = error.message
    except asyncio.CancelledError:
        # If nobody has cancelled this task, the tool itself has raised the error, and only its call has failed.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        failure = "the tool was cancelled from within"
    if failure is not None:
        log.info("tool.error", tool=name, reason=failure)
        await queue.put((index, CallFailed(failure)))
    await queue.put((index, CallEnded()))


async def _forward(index: int, call: PreparedCall, limit: float, queue: _Queue) -> None:
    clock = asyncio.timeout(limit)
    try:
        async with clock, aclosing(_limit(call.tool.call(call.arguments))) as pieces:
            async for piece in pieces:
                await queue.put((index, piece))
    except TimeoutError:
        # A TimeoutError of the tool's own is a defect of the tool.
        if not clock.expired():
            raise
        raise Timeout(f"no result within {limit:g} s") from None


async def _limit(source: AsyncGenerator[Piece, None]) -> AsyncGenerator[Piece, None]:
    length = 0
    async with aclosing(source):
        async for piece in source:
            if not isinstance(piece, str):
                yield piece
            elif piece:
                length += len(piece)
                if length > MAX_OBSERVATION_CHARACTERS:
                    yield piece[: len(piece) - (length - MAX_OBSERVATION_CHARACTERS)]
                    yield f"\n(the rest is left out; only {MAX_OBSERVATION_CHARACTERS} characters are shown)"
                    return
                yield piece
