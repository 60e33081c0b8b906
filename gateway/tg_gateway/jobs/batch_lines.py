"""Line of a batch -> its door's dialect -> a response that waits for capacity -> what the door answers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Final, TypeVar

import msgspec
import structlog

from tg_base.runtime import translate_defects
from tg_base.telemetry import new_id
from tg_gateway.dialects import (
    MAX_KEPT_BYTES,
    Ask,
    Batch,
    Call,
    Catalogue,
    IdempotencyKey,
    KeptStreams,
    Mount,
    StreamedAnswer,
    Waiting,
    batches,
    join_output,
    name_answer,
)
from tg_gateway.jobs.requests import JobRequests
from tg_gateway.relay import DEFECT_MESSAGE, Relay
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TgError
from tg_schema.errors import BadRequest, Internal, RateLimited, TooLarge

log = structlog.get_logger()

MAX_ATTEMPTS: Final = 3
"""How often a model may be asked for a line, if what made the answer was lost, as in a rolling restart."""
PAUSE_SECONDS: Final = 1.0
"""Before a line is begun again that could not be."""
T = TypeVar("T")


class BatchLines:
    """Asks each line as its door would, under a name of its own: a model is asked once, however often it is begun.

    Args:
        relay: asks the lines that have several prompts; these have no name.
        jobs: ask all other lines.
        streams: say how their answers are kept.
        mounts: the doors of the lines.
        catalogue: the models.

    Attributes:
        catalogue: as given. An edit of the file replaces it.
    """

    def __init__(
        self, relay: Relay, jobs: JobRequests, streams: KeptStreams, mounts: Sequence[Mount], catalogue: Catalogue
    ) -> None:
        self.catalogue = catalogue
        self._relay = relay
        self._jobs = jobs
        self._streams = streams
        self._doors = {mount.path: mount for mount in mounts if mount.method == "POST" and not mount.accept}

    def name(self, batch: batches.Head, key: str | None, line: batches.Line) -> IdempotencyKey:
        """The name of the answer to a line."""
        return IdempotencyKey("custom_id", key, name_answer("line-", batch.id, line.custom_id), batch.id)

    async def drop(self, shared: IdempotencyKey) -> None:
        """Forget the answer to a line; if it is made, its model stops."""
        await self._jobs.drop(shared.name)

    async def ask(self, batch: batches.Head, line: batches.Line, shared: IdempotencyKey) -> batches.Result:
        """The final answer to a line."""
        door, failures = self._doors[batch.endpoint], 0
        call = Call(door.operation, self.catalogue, {}, {}, {}, new_id(), bytes(line.body), stores=False)
        call.kept = self._jobs.store.of(shared.owner)
        while True:
            try:
                with translate_defects(Internal, DEFECT_MESSAGE, "batch.defect", log):
                    status, body = 200, await self._answer(batch, call, door, shared)
            except TgError as error:
                failures += not isinstance(error, RateLimited)
                if error.retryable and failures < MAX_ATTEMPTS:
                    pauses = self._jobs.store.logs.pauses
                    pause = pauses.measure(pauses.choose(max(failures, 1), batch.deadline))
                    await asyncio.sleep(error.retry_after or pause)
                    continue
                refused = door.dialect.refuse(error, error.status, call)
                status, body = refused.status, refused.body
            return batches.Result(line.custom_id, status, call.request_id, msgspec.Raw(body))

    async def _answer(self, batch: batches.Head, call: Call, door: Mount, shared: IdempotencyKey) -> bytes:
        """The whole answer to a line. Raises TgError: there is none."""
        parsed = door.dialect.parse(call)
        asked = await parsed if isinstance(parsed, Awaitable) else parsed
        if not isinstance(asked, Ask) or asked.streaming or asked.background is not None:
            raise BadRequest("a line of a batch asks for one whole answer: leave stream and background out")
        asked, entry = asked.unpack(), AccessLogEntry("batch", call.request_id, key=shared.owner)
        if isinstance(asked.request, Batch):
            body = await self._ask_several(asked, entry)
        else:
            body = await self._read_shared(batch, asked, door, shared, entry)
        if len(body) > MAX_KEPT_BYTES:
            raise TooLarge(f"the answer is larger than {MAX_KEPT_BYTES} bytes, which is the most that is kept")
        return body

    async def _ask_several(self, asked: Ask, entry: AccessLogEntry) -> bytes:
        """The answer to a line of several prompts. No job makes it, so its end is logged here."""
        entry.flow, entry.service = asked.route.flow, asked.route.spec.name
        try:
            async with AsyncExitStack() as stack:
                opened = await _begin(lambda: stack.enter_async_context(self._relay.ask(asked, entry)))
                body = join_output(await opened.write_whole(asked.writer))
        except TgError as error:
            entry.end(error.status, error.type)
            raise
        else:
            entry.end(200, "ok")
            return body
        finally:
            entry.write()

    async def _read_shared(
        self, batch: batches.Head, asked: Ask, door: Mount, shared: IdempotencyKey, entry: AccessLogEntry
    ) -> bytes:
        """The answer to a line; the model is asked once, also if several gateways ask the line."""
        asked.writer.fields = asked.fields
        kept = self._streams.share(asked.writer, door.door, shared, None, streaming=False)
        seconds = batch.deadline - self._jobs.store.logs.clock()
        waiting = replace(kept, waiting=Waiting(seconds), seconds=seconds, listed=False)
        log = await _begin(lambda: self._jobs.put(asked, waiting, entry))
        answer = kept.answer(self._jobs.store.of(shared.owner, bounded=False, log=log))
        if not isinstance(answer, StreamedAnswer):
            return answer.body
        async with aclosing(answer.parts) as parts:
            return b"".join([part async for part in parts])


async def _begin(begin: Callable[[], Awaitable[T]]) -> T:
    """Call `begin` until there is room and somebody to ask; what it returns. Raises TgError if a retry cannot help."""
    while True:
        try:
            return await begin()
        except TgError as error:
            if not error.retryable:
                raise
            await asyncio.sleep(error.retry_after or PAUSE_SECONDS)
