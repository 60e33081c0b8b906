"""An answer whose requestor has died or left: another requestor reads on, and only the newest one may stop it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.counting_llm import CountingLlm, release
from tests.flow.open_gateway import CONFIG, QUEUES, TEXTS
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor, ResponseStream
from tg_base.client.attempt import ADOPTED
from tg_base.protocol import MAX_NUMBER
from tg_base.server import Processor
from tg_schema import TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import Unavailable

(ROUTE,) = TEXTS
WORDS = 6
Stream = ResponseStream[TextCompletionResponse]


@asynccontextmanager
async def open_two() -> AsyncIterator[tuple[CountingLlm, Requestor, Requestor]]:
    """A model that says a word for each step, and two requestors."""
    llm = CountingLlm()
    llm.step = asyncio.Semaphore(0)
    async with (
        aclosing(MemoryBus()) as bus,
        Processor(bus, CONFIG.topics, llm, TEXTS, models=(llm.model,), grace=0.05),
        Requestor(bus, CONFIG.topics, queues=QUEUES) as one,
        Requestor(bus, CONFIG.topics, queues=QUEUES) as other,
    ):
        await until(lambda: bool(one.presence.serving(ROUTE.request)))
        yield llm, one, other


def step(llm: CountingLlm, words: int) -> None:
    release(llm.step, words)


async def read(stream: Stream, words: int) -> str:
    """So many words of it; they may come together."""
    text = ""
    while text.count(" ") < words:
        text += (await anext(stream)).response or ""
    return text


async def read_rest(stream: Stream) -> str:
    return "".join([record.response or "" async for record in stream])


def whole(words: int = WORDS) -> str:
    return "".join(f"{number} " for number in range(words))


REQUEST = TextCompletionRequest(prompt=str(WORDS), streaming=True)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, WORDS), st.integers(0, WORDS), st.booleans())
def test_who_adopts_reads_on_where_the_other_one_was(read_words: int, more: int, leaves: bool) -> None:
    async def check() -> None:
        async with open_two() as (llm, one, other), AsyncExitStack() as first:
            stream = await first.enter_async_context(one.stream(ROUTE, REQUEST, timeout=20, kept=True))
            step(llm, read_words)
            text = await read(stream, read_words)
            origin, taken = stream.origin, stream.taken
            assert origin is not None
            assert stream.settled
            if stream.complete:
                return
            # What comes meanwhile reaches nobody, or only the one that dies.
            step(llm, more)
            if leaves:
                stream.left = True
                await first.aclose()
            async with other.adopt(ROUTE, REQUEST, origin, taken, timeout=20) as adopted:
                await until(lambda: adopted.attempt.link < MAX_NUMBER)
                # It was only suspended, and cancels what it has lost.
                await first.aclose()
                step(llm, WORDS + 1)
                assert text + await read_rest(adopted) == whole()
            assert (len(llm.requests), llm.generated) == (1, WORDS)

    asyncio.run(check())


async def test_what_has_ended_can_be_adopted_a_little_longer() -> None:
    async with open_two() as (llm, one, other):
        async with one.stream(ROUTE, REQUEST, timeout=20, kept=True) as stream:
            step(llm, WORDS + 1)
            await read_rest(stream)
            origin = stream.origin
        assert origin is not None
        await llm.stopped.wait()
        for number in range(3):
            async with other.adopt(ROUTE, REQUEST, origin._replace(attempt=number + 1), 0, timeout=20) as adopted:
                assert await read_rest(adopted) == whole()


@pytest.mark.parametrize("attempt", [0, 1])
async def test_what_a_processor_does_not_have_is_not_adopted(attempt: int) -> None:
    async with (
        open_two() as (llm, one, other),
        one.stream(ROUTE, REQUEST, timeout=20, kept=bool(attempt)) as stream,
    ):
        step(llm, 1)
        await read(stream, 1)
        origin = stream.origin
        assert origin is not None
        # It is not kept, or another requestor has had this attempt.
        taken = origin._replace(attempt=origin.attempt - ADOPTED)
        async with other.adopt(ROUTE, REQUEST, taken if attempt else origin, 1, timeout=20) as adopted:
            with pytest.raises(Unavailable, match="does not have the answer"):
                await read_rest(adopted)
        step(llm, WORDS)
        assert (await read_rest(stream)).endswith(f"{WORDS - 1} ")
