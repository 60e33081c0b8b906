"""File -> log of its bytes; batch -> log of its progress, another one of its results, and a message to make it.

Each key has one more log, which lists its files and batches. A key whose list is full can keep no more: nothing is
erased before its time, since a batch may need it.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import batches, name_answer
from tg_gateway.jobs.key_list import KeyList, find_listed
from tg_gateway.jobs.log import HEAD, JobLog, label_cancel, label_end, label_part
from tg_gateway.jobs.logs import JobLogs
from tg_schema import TgError, decode, encode
from tg_schema.errors import BadRequest, BusError

MAX_KEPT: Final = 1_000
"""Files and batches of one key."""
MAX_CHANGES: Final = 20_000
"""Of the list of a key, in two periods."""
KEY_BYTES: Final = 256 * 1024 * 1024
"""Of the files and results of one key."""
PART_BYTES: Final = 1024 * 1024

BATCH_NAME, BATCH_KEY = "name", "key"
"""Properties of the message of a batch: its id, and the name of the API key that has begun it, if it has one."""


class BatchEnd(msgspec.Struct, frozen=True):
    """The end of a batch: its time in Unix seconds, and how many results it has."""

    at: int
    counts: batches.Counts = batches.Counts()


@dataclass(frozen=True, slots=True)
class KeyBatches(batches.Store):
    """The files and batches of one key.

    Attributes:
        logs: those of all files and batches.
        key: its name.
        queue: the topic of batches that are to be made.
    """

    logs: JobLogs
    key: str | None
    queue: str

    @property
    def owner(self) -> str:
        """Whose the logs are."""
        return self.logs.owner(self.key)

    @property
    def _list(self) -> KeyList:
        return KeyList(self.logs, self.owner, "files", batches.FILE_SECONDS)

    @override
    async def put(self, head: batches.File, data: bytes) -> None:
        logs, name, kept = self.logs, head.id, encode(head)
        await self._admit(len(data))
        await self._begin(name, kept)
        async with logs.bus.open_log(logs.topic(name)) as log:
            for number, start in enumerate(range(0, len(data), PART_BYTES)):
                await log.append(data[start : start + PART_BYTES], label_part(number))
            await log.append(b"", label_end("ended"))
        logs.written.measure(name, len(kept) + len(data))
        await self._list.add(name, kept, head.expires_at, len(data))

    @override
    async def read(self, file: str) -> bytes:
        log = await self.logs.load(self.owner, file)
        if log.outcome != "ended" or log.answer.cut:
            raise BusError("a part of the file is missing: send it again")
        return b"".join(log.take_parts())

    @override
    async def begin(self, head: batches.Head) -> None:
        logs, kept = self.logs, encode(head)
        await self._admit(0)
        await self._begin(head.id, kept)
        await self._begin(self.name_results(head.id), b"")
        if head.faults:
            await logs.note(head.id, label_end("died"), encode(BatchEnd(head.created)))
        await self.list_with(head, 0)
        try:
            if not head.faults:
                key = {} if self.key is None else {BATCH_KEY: self.key}
                await logs.bus.publish(self.queue, b"", {BATCH_NAME: head.id} | key)
        except TgError:
            # If the message arrives all the same, it finds no batch.
            with suppress(TgError):
                await self.erase(head.id)
            raise

    async def _admit(self, size: int) -> None:
        entries = await self._list.read()
        listed = find_listed(entries, self.logs.clock())
        held = sum(each for _, each in listed.values())
        if len(listed) >= MAX_KEPT or len(entries) >= MAX_CHANGES or held + size > KEY_BYTES:
            raise BadRequest(
                f"{MAX_KEPT} files and batches are kept of a key, with {KEY_BYTES} bytes and {MAX_CHANGES} changes in "
                "a month: delete some, or wait until they expire"
            )
        self.logs.written.check_room(size)

    async def _begin(self, name: str, head: bytes) -> None:
        await self.logs.begin(self.owner, name, head, HEAD, seconds=batches.FILE_SECONDS)
        # So it is not erased to make room for others.
        self.logs.written.mark(name, waits=True)

    async def list_with(self, head: batches.Head, size: int) -> None:
        """List a batch whose answers have this size."""
        await self._list.add(head.id, encode(head), head.created + batches.FILE_SECONDS, size)

    def name_results(self, batch: str) -> str:
        """The name of the log with the results of a batch, one an entry."""
        return name_answer("results-", self.owner, batch)

    @override
    async def find(self, batch: str) -> batches.Stored:
        return show_batch(batch, await self.logs.load(self.owner, batch))

    @override
    async def read_results(self, batch: str) -> Sequence[batches.Result]:
        name = self.name_results(batch)
        texts = [entry.body for entry in await self.logs.bus.read(self.logs.topic(name)) if entry.body]
        self.logs.written.measure(name, sum(map(len, texts)))
        found = dict[str, batches.Result]()
        # Two gateways may have appended the same answer, if one of them was wrongly taken for dead.
        for result in (decode(batches.Result, text) for text in texts):
            found.setdefault(result.custom_id, result)
        return tuple(found.values())

    @override
    async def cancel(self, batch: str) -> None:
        if (await self.logs.load(self.owner, batch)).outcome == "running":
            await self.logs.note(batch, label_cancel(self.logs.clock()))

    @override
    async def list(self, shelf: batches.Shelf) -> Mapping[str, bytes]:
        listed = find_listed(await self._list.read(), self.logs.clock())
        return {name: head for name, (head, _) in reversed(listed.items()) if re.split("[-_]", name)[0] == shelf}

    @override
    async def erase(self, name: str) -> None:
        await self.logs.load(self.owner, name)
        await self.logs.written.erase(name)
        if "batch_" in name:
            await self.logs.written.erase(self.name_results(name))
        await self._list.add(name, b"", 0.0)


def show_batch(name: str, log: JobLog) -> batches.Stored:
    """What the log of a batch of this name says."""
    answer, parts = log.answer, log.take_parts()
    counts = decode(batches.Counts, parts[-1]) if parts else batches.Counts()
    end = decode(BatchEnd, answer.end) if answer.end else BatchEnd(0, counts)
    try:
        head = decode(batches.Head, answer.head or b"")
    except BadRequest as error:
        # Perhaps another version has written it. Without a file it fails as soon as it is made.
        begun, fault = int(log.expires) - batches.FILE_SECONDS, batches.Fault("unreadable", error.message)
        head = batches.Head(name, "", "", 0, begun, begun + batches.BATCH_SECONDS, faults=(fault,))
    return batches.Stored(head, end.counts, log.outcome, bool(log.maker), int(log.cancelled_at), end.at)
