"""Several streams of a provider -> one: the answers of a request whose provider gives one answer at a time."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from tg_base.llm.core import LlmChunk

MAX_QUEUED_CHUNKS = 64
"""Chunks of all streams that wait for the reader; more stay with the provider."""


async def merge_streams(sources: Sequence[AsyncGenerator[LlmChunk, None]], most: int) -> AsyncGenerator[LlmChunk, None]:
    """The chunks of all sources as they come, each with its source's number as `index`.

    At most `most` sources run at the same time; the others begin when one ends. When the generator is left, all of them
    are closed.

    Raises:
        Exception: the error of the first source that fails; the others are closed.
    """
    # Unbounded, since the ends of the tasks come through it too, and a callback cannot wait; `room` bounds the chunks.
    queue: asyncio.Queue[LlmChunk | asyncio.Task[None]] = asyncio.Queue()
    room, slots = asyncio.Semaphore(MAX_QUEUED_CHUNKS), asyncio.Semaphore(most)

    async def read(index: int, source: AsyncGenerator[LlmChunk, None]) -> None:
        async with slots, aclosing(source):
            async for chunk in source:
                await room.acquire()
                queue.put_nowait(msgspec.structs.replace(chunk, index=index))

    tasks = [asyncio.create_task(read(index, source)) for index, source in enumerate(sources)]
    for task in tasks:
        task.add_done_callback(queue.put_nowait)
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if isinstance(item, asyncio.Task):
                item.result()
                running -= 1
            else:
                room.release()
                yield item
    finally:
        for task in tasks:
            task.cancel()
        # Also retrieves the errors of further sources that failed, which asyncio would log otherwise.
        await asyncio.gather(*tasks, return_exceptions=True)
