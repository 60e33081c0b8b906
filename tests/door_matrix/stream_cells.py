"""The columns for what happens to an answer that has begun: it fails, or its client leaves or does not read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.door_matrix.cell import Cell, describe_failure, describe_refusal
from tests.door_matrix.door import Door
from tests.door_matrix.slow_reader import read_nothing
from tests.door_matrix.stage import OpenStage, Stage
from tests.door_matrix.visit import MODEL, Visit
from tests.fakes.openai_chat_server import CompatibleServer
from tests.fakes.plan import Fault, Plan
from tests.within import within
from tg_flow.providers import open_provider
from tg_schema.errors import Unavailable

MAX_CHUNKS_AFTER: Final = 1
"""That a model may generate after its client has left."""
STOP_PACES: Final = 2
"""Within which a model must stop that nobody waits for."""


async def _error_in_the_middle(door: Door, opening: OpenStage) -> str:
    async with opening() as it:
        it.llm.forget()
        it.llm.error = Unavailable("the provider is down")
        it.llm.go.clear()
        async with it.visit(door, "1") as visit:
            if door.way != "body":
                await visit.begin()
            await it.llm.spoke.wait()
            it.llm.go.set()
            await visit.finish()
    assert "the provider is down" in str(visit.error)
    if door.way == "body":
        return describe_refusal(door, visit, retry=True)
    assert visit.text == "0 "
    return describe_failure(door, visit)


async def _cut(door: Door, opening: OpenStage) -> str:
    """The real provider, whose server breaks the connection after the first piece of text."""
    async with CompatibleServer.running() as wire:
        wire.play(Plan(text=("Hel", "lo"), fault=Fault.ABORT, after=1))
        options = {"base_url": f"{wire.url}/v1", "key_variable": "", "tries": 1}
        provider = await open_provider("openai-compatible", MODEL, options)
        async with opening(provider=provider) as it:
            visit = await it.ask(door, "1")
        await provider.aclose()
    if door.way == "body":
        return describe_refusal(door, visit, retry=True)
    assert visit.text == "Hel"
    return describe_failure(door, visit)


async def _leave(door: Door, opening: OpenStage) -> str:
    async with opening() as it:
        for silent in (True, False):
            async with _asking(door, it, silent=silent):
                generated = it.llm.generated
            await _stop(it, generated)
            if door.cancel:
                await _cancel(door, it, silent=silent)
    return f"stopped; at most {MAX_CHUNKS_AFTER} chunk more{', by a message too' if door.cancel else ''}"


@asynccontextmanager
async def _asking(door: Door, it: Stage, *, silent: bool) -> AsyncIterator[Visit]:
    """A client that waits for its answer, or for the rest of it."""
    it.llm.forget()
    it.llm.silent, it.llm.pace = silent, it.pace
    async with it.visit(door, "1000") as visit:
        await (it.llm.started if silent else it.llm.spoke).wait()
        if not silent and door.way != "body":
            await visit.begin()
        yield visit


async def _cancel(door: Door, it: Stage, *, silent: bool) -> None:
    async with _asking(door, it, silent=silent) as visit:
        generated = it.llm.generated
        assert visit.socket is not None
        await visit.socket.send_str(door.make_cancel())
        await _stop(it, generated)
        await visit.finish()
    assert visit.open, visit
    assert "the request was cancelled" in str(visit.error)


async def _stop(it: Stage, generated: int) -> None:
    """The model stops in time, and has generated no more than it may."""
    await within(STOP_PACES * it.pace, it.llm.stopped.wait())
    assert it.llm.generated - generated <= MAX_CHUNKS_AFTER


async def _send_again(door: Door, opening: OpenStage) -> str:
    """With its key, after a cut, and once more when the answer has ended; then the key with another body."""
    if not door.keyed:
        return "not there"
    async with opening() as it:
        it.llm.forget()
        it.llm.go.clear()
        async with it.visit(door, "2", word="w"):
            await it.llm.spoke.wait()
        async with it.visit(door, "2", word="w") as joined:
            it.llm.go.set()
            await joined.finish()
        repeated, other = await it.ask(door, "2", word="w"), await it.ask(door, "3", word="w")
        assert len(it.llm.requests) == 1
    assert (joined.whole, joined.text, joined.broken) == (True, "0 1 ", False)
    assert (repeated.whole, repeated.text, repeated.broken) == (True, "0 1 ", False)
    describe_refusal(door, other, retry=False)
    return f"the one answer; another body: {f'message `{other.kind}`' if door.way == 'socket' else other.status}"


STREAM_CELLS: Final[tuple[Cell, ...]] = (
    Cell("error in mid-stream", _error_in_the_middle, everywhere=True),
    Cell("provider's connection breaks", _cut),
    Cell("client leaves", _leave, everywhere=True),
    Cell("client does not read", read_nothing),
    Cell("sent again with its key", _send_again),
)
