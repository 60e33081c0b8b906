"""Answer -> log on the bus -> answer: what dialects keep, bound to the key that asked, in bounded space."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass

import structlog
from typing_extensions import override

from tg_base.telemetry import new_id
from tg_gateway.dialects import Background, Keep, KeptAnswer, KeptAnswers
from tg_gateway.jobs.live_parts import LiveParts
from tg_gateway.jobs.log import CANCEL, HEAD, WHOLE, JobLog, NameTaken, label_claim
from tg_gateway.jobs.log_watch import SeenLogs
from tg_gateway.jobs.logs import NOT_FOUND, JobLogs
from tg_gateway.jobs.waiting import WaitingJobs
from tg_gateway.jobs.writer import JobWriter
from tg_schema.errors import BusError, NotFound, RateLimited, TooLarge


class FollowerCount:
    """Limits the clients that read a kept response at the same time.

    Args:
        most: the most clients of one key.
        most_in_all: the most clients of all keys.
    """

    def __init__(self, most: int, most_in_all: int) -> None:
        self._most = most
        self._most_in_all = most_in_all
        self._following: Counter[str] = Counter()

    @contextmanager
    def enter(self, key: str) -> Iterator[None]:
        """Count one client of a key while the block runs.

        Raises:
            RateLimited: too many clients read.
        """
        if self._following[key] >= self._most or self._following.total() >= self._most_in_all:
            raise RateLimited("too many clients follow responses of this gateway; ask again later", retry_after=1.0)
        self._following[key] += 1
        try:
            yield
        finally:
            # In place of `[key] -= 1`: a key that has none any more is forgotten.
            self._following -= Counter([key])


log = structlog.get_logger()

_Steps = AsyncGenerator[bytes | KeptAnswer, None]


class JobStore:
    """The kept answers of all keys.

    Args:
        logs: the answers' logs.
        max_followers: clients of one key that follow answers side by side.
        max_all_followers: the same, of all keys.

    Attributes:
        logs: as given.
        waiting: the answers among them that wait for capacity.
    """

    def __init__(self, logs: JobLogs, *, max_followers: int = 64, max_all_followers: int = 256) -> None:
        self.logs = logs
        self.waiting = WaitingJobs(logs)
        self._followers = FollowerCount(max_followers, max_all_followers)
        self._seen = SeenLogs(logs.silence, time.monotonic)

    def of(self, key: str | None, *, bounded: bool = True, live: LiveParts | None = None) -> KeptAnswers:
        """The kept answers of this key; requests without a key share theirs.

        Args:
            key: the key's name.
            bounded: whether followers count. A client that has just begun an answer need not count: its answers are
                bounded, and a refusal would hide the name of the running answer.
            live: the parts of the answer that it has just begun, for its first follower.
        """
        return _KeyAnswers(self, self.logs.owner(key), bounded, live)

    async def keep(self, key: str | None, keep: Keep) -> None:
        """Return once it can be read through any gateway, or if it is optional and cannot be kept.

        Raises:
            TooLarge: it has more than `MAX_KEPT_BYTES`.
            BusError: the bus did not take it.
        """
        try:
            await self.logs.begin(self.logs.owner(key), keep.name, keep.make(), WHOLE)
        except (TooLarge, BusError) as error:
            if not keep.optional:
                raise
            log.warning("answer.not_kept", answer=keep.name, reason=error.message)

    @asynccontextmanager
    async def open(
        self, key: str | None, background: Background, live: LiveParts | None = None
    ) -> AsyncIterator[tuple[JobWriter, str]]:
        """Store an answer while it is made. Entering stores its head, and gives the head's position.

        Raises:
            NameTaken: its name is chosen, and another request was first.
            TooLarge, BusError: as `keep`.
        """
        owner, name = self.logs.owner(key), background.name
        claim = new_id() if background.chosen else ""
        position = await self.logs.begin(owner, name, background.head, HEAD, claim=claim, seconds=background.seconds)
        if background.chosen:
            await self._check_claim(name, claim)
        async with self.logs.write(background, live=live, claim=claim) as writer:
            yield writer, position

    async def check_free(self, key: str | None, name: str) -> None:
        """Check that no answer of this name is kept, or that its end has freed the name.

        Raises:
            NameTaken: neither is so.
            BusError: the bus did not answer.
        """
        with suppress(NotFound):
            if not (await self.logs.load(self.logs.owner(key), name)).free:
                raise NameTaken

    async def _check_claim(self, name: str, claim: str) -> None:
        """If several gateways begin one log at a time, the broker's order says which of them has it."""
        if JobLog(await self.logs.bus.read(self.logs.topic(name))).claim != claim:
            self.logs.written.discard(name)
            raise NameTaken

    async def read(self, owner: str, name: str) -> KeptAnswer:
        """As `KeptAnswers.read`."""
        log = await self.logs.load(owner, name)
        # If its gateway died, this reader says so in the log, so that all others find it too.
        if log.outcome == "running" and not log.waiting and self._seen.is_silent(name, log.position):
            await self.logs.declare_dead(name, log)
        elif log.is_expired(self.logs.clock()):
            await self.logs.declare_expired(name, log)
        else:
            return log.answer
        return (await self.logs.load(owner, name)).answer

    async def follow(self, owner: str, name: str, head: bytes | None, *, bounded: bool) -> _Steps:
        """As `KeptAnswers.follow`; bounded: whether it counts."""
        # Count ended responses too: this process holds a whole response until its client has read it.
        with self._followers.enter(owner) if bounded else nullcontext():
            log = await self.logs.load(owner, name, head)
            for part in log.take_parts():
                yield part
            if log.outcome == "running":
                yield b""
                async with aclosing(self._follow(name, log)) as parts:
                    async for part in parts:
                        yield part
            yield log.answer

    async def follow_live(self, owner: str, name: str, head: bytes | None, live: LiveParts) -> _Steps:
        """As `follow`, of an answer that this process makes; without the log's delay while the client keeps up."""
        async with aclosing(live.lead(self.follow(owner, name, head, bounded=False))) as steps:
            async for step in steps:
                yield step

    async def _follow(self, name: str, log: JobLog) -> AsyncGenerator[bytes, None]:
        async with aclosing(self.logs.watch(name, log.position)) as entries:
            async for entry in entries:
                if entry is None:
                    if log.is_expired(self.logs.clock()):
                        await self.logs.declare_expired(name, log)
                    elif log.waiting:
                        yield b""
                    else:
                        # If no end can be appended, the next client gets the reason, and not that the response still
                        # runs.
                        self._seen.note_silence(name, log.position)
                        await self.logs.declare_dead(name, log)
                    continue
                log.add(entry)
                for part in log.take_parts():
                    yield part
                if log.outcome != "running":
                    return
        raise NotFound(NOT_FOUND)

    async def cancel(self, owner: str, name: str, head: bytes | None) -> KeptAnswer:
        """As `KeptAnswers.cancel`. If its writer does not end it within `silence`, this gateway writes the end."""
        log = await self.logs.load(owner, name)
        # Another head means that a newer response has the name, so the response that is meant has ended.
        if head not in {None, log.answer.head}:
            return log.answer
        if log.waiting:
            # No gateway works on it yet, so nobody needs a stop signal. A gateway that takes it now finds this end.
            await self.logs.declare(name, "cancelled", claim=log.claim)
            log = await self.logs.load(owner, name)
        elif log.outcome == "running":
            await self.logs.bus.append(self.logs.topic(name), b"", label_claim(CANCEL, log.claim))
            try:
                async with asyncio.timeout(self.logs.silence), aclosing(self._follow(name, log)) as parts:
                    async for _ in parts:
                        pass
            except TimeoutError:
                await self.logs.declare(name, "cancelled", claim=log.claim)
                log = await self.logs.load(owner, name)
            except NotFound:
                await self.logs.sweep(name)
                raise
        return log.answer

    async def erase(self, owner: str, name: str) -> None:
        """As `KeptAnswers.erase`."""
        await self.logs.load(owner, name)
        await self.logs.written.erase(name)


@dataclass(frozen=True, slots=True)
class _KeyAnswers(KeptAnswers):
    """The kept answers of one key."""

    store: JobStore
    owner: str
    bounded: bool
    live: LiveParts | None

    @override
    async def read(self, name: str) -> KeptAnswer:
        return await self.store.read(self.owner, name)

    @override
    def follow(self, name: str, head: bytes | None = None) -> _Steps:
        if self.live is not None:
            return self.store.follow_live(self.owner, name, head, self.live)
        return self.store.follow(self.owner, name, head, bounded=self.bounded)

    @override
    async def cancel(self, name: str, head: bytes | None = None) -> KeptAnswer:
        return await self.store.cancel(self.owner, name, head)

    @override
    async def erase(self, name: str) -> None:
        await self.store.erase(self.owner, name)
