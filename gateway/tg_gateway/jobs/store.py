"""Answer -> log on the bus -> answer: what dialects keep, bound to the key that asked, in bounded space."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass

import structlog
from typing_extensions import override

from tg_base.telemetry import new_id
from tg_gateway.access import Limits
from tg_gateway.dialects import Background, Keep, KeptAnswer, KeptAnswers, Waiting
from tg_gateway.jobs.log import CANCEL, END, HEAD, JobLog, NameTaken, label, label_end
from tg_gateway.jobs.log_watch import FollowerCount
from tg_gateway.jobs.logs import NOT_FOUND, JobLogs
from tg_gateway.jobs.stream_list import StreamList
from tg_schema.errors import BusError, NotFound, TooLarge

log = structlog.get_logger()

_Steps = AsyncGenerator[bytes | KeptAnswer, None]


class JobStore:
    """The kept answers of all keys.

    Args:
        logs: the answers' logs.
        limits: how many clients follow answers side by side.

    Attributes:
        logs: as given.
        followers: who reads responses now.
    """

    def __init__(self, logs: JobLogs, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self.logs = logs
        self.followers = FollowerCount(limits.followers, limits.all_followers)

    def of(self, key: str | None, *, bounded: bool = True, log: JobLog | None = None) -> KeptAnswers:
        """The kept answers of this key; requests without a key share theirs.

        Args:
            key: the key's name.
            bounded: whether followers count. A client that has just begun an answer need not count: its answers are
                bounded, and a refusal would hide the name of the running answer.
            log: the log of the answer that a client has just begun: it alone is read and followed, once. None = the bus
                is read.
        """
        return _KeyAnswers(self, self.logs.owner(key), bounded, log)

    async def keep(self, key: str | None, keep: Keep) -> None:
        """Return once it can be read through any gateway, or if it is optional and cannot be kept.

        Raises:
            TooLarge: it has more than `MAX_KEPT_BYTES`.
            BusError: the bus did not take it.
        """
        try:
            await self.logs.begin(self.logs.owner(key), keep.name, keep.make(), END)
        except (TooLarge, BusError) as error:
            if not keep.optional:
                raise
            log.warning("answer.not_kept", answer=keep.name, reason=error.message)

    async def put(self, key: str | None, background: Background, waiting: Waiting, over: str = "") -> JobLog:
        """Store a response that a process is to make; returns its log, which has only the head yet.

        `over` is the claim of the ended response that it replaces; "" = there is none.

        Raises:
            NameTaken: its name is chosen, and another request was first.
            TooLarge, BusError: as `keep`.
        """
        logs, name = self.logs, background.name
        claim = "" if background.joins is None else new_id()
        first = await logs.begin(
            logs.owner(key),
            name,
            background.head,
            HEAD,
            claim=claim,
            seconds=background.seconds,
            waits=logs.clock() + waiting.seconds,
            attempts=waiting.attempts,
            over=over,
        )
        # If several gateways begin one log at a time, the broker's order says which of them has it.
        if claim and JobLog(await logs.bus.read(logs.topic(name))).claim != claim:
            logs.written.discard(name)
            raise NameTaken
        return JobLog((first._replace(body=background.head),))

    async def find_replaced(self, key: str | None, name: str) -> str:
        """The claim of the ended response that a new one of this name replaces; "" = there is none.

        Raises:
            NameTaken: a response of this name is kept, and its end has not freed the name.
            BusError: the bus did not answer.
        """
        with suppress(NotFound):
            log = await self.logs.load(self.logs.owner(key), name)
            if not log.free:
                raise NameTaken
            return log.claim
        return ""


@dataclass(frozen=True, slots=True)
class _KeyAnswers(KeptAnswers):
    """The kept answers of one key."""

    store: JobStore
    owner: str
    bounded: bool
    log: JobLog | None = None

    @override
    def of(self, key: str) -> KeptAnswers:
        return self.store.of(key)

    @override
    async def list(self) -> Sequence[bytes]:
        return await StreamList(self.store.logs, self.owner).read()

    @override
    async def follow_list(self) -> AsyncGenerator[bytes, None]:
        with self.store.followers.enter(self.owner):
            async with aclosing(StreamList(self.store.logs, self.owner).follow()) as streams:
                async for stream in streams:
                    yield stream

    @override
    async def read(self, name: str) -> KeptAnswer:
        logs = self.store.logs
        if self.log is not None:
            return self.log.answer
        log = await logs.load(self.owner, name)
        # If its gateway died, this reader says so in the log, so that all others find it too.
        if await logs.end_lost(name, log):
            log = await logs.load(self.owner, name)
        return log.answer

    @override
    async def follow(self, name: str, head: bytes | None = None) -> _Steps:
        # Count ended responses too: this process holds a whole response until its client has read it.
        with self.store.followers.enter(self.owner) if self.bounded else nullcontext():
            log = self.log or await self.store.logs.load(self.owner, name, head)
            for part in log.take_parts():
                yield part
            if log.outcome == "running":
                yield b""
                try:
                    async with aclosing(self._watch(name, log)) as parts:
                        async for part in parts:
                            yield part
                finally:
                    self.store.logs.written.measure(name, log.size)
            yield log.answer

    async def _watch(self, name: str, log: JobLog) -> AsyncGenerator[bytes, None]:
        logs = self.store.logs
        async with aclosing(logs.follow(name, log)) as entries:
            async for entry in entries:
                for part in log.take_parts():
                    yield part
                if entry is None:
                    # If no end can be appended, the next client gets the reason, and not that the response still runs.
                    logs.seen.note_silence(name, log.position)
                    await logs.end_lost(name, log)
                    if log.waiting:
                        yield b""
        if log.outcome == "running":
            raise NotFound(NOT_FOUND)

    @override
    async def cancel(self, name: str, head: bytes | None = None) -> KeptAnswer:
        """As `KeptAnswers.cancel`. If its writer does not end it within `silence`, this gateway writes the end."""
        logs = self.store.logs
        log = await logs.load(self.owner, name)
        # Another head means that a newer response has the name, so the response that is meant has ended.
        if head not in {None, log.answer.head}:
            return log.answer
        # Where nobody makes it yet, nobody needs a stop signal: a process that takes it now finds the end.
        if log.outcome == "running" and not log.waiting:
            await logs.note(name, label(CANCEL, claim=log.claim))
            with suppress(TimeoutError):
                async with asyncio.timeout(logs.silence), aclosing(self._watch(name, log)) as parts:
                    async for _ in parts:
                        pass
        if log.outcome == "running":
            await logs.declare(name, label_end("cancelled", claim=log.claim))
            log = await logs.load(self.owner, name)
        return log.answer

    @override
    async def erase(self, name: str) -> None:
        await self.store.logs.load(self.owner, name)
        await self.store.logs.written.erase(name)
