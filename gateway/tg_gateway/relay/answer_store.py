"""Answer -> log of the bus -> answer: what dialects keep, each answer bound to the key that asked, in bounded space.

Each answer is a log of its own, named after it, so there is no index that could disagree. Any gateway on the bus reads
it, also while another one writes it. The bounds of a key are counted by each gateway for what it wrote.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from tg_base.bus import Bus, Entry
from tg_base.runtime import running
from tg_base.telemetry import new_id
from tg_gateway.dialects.answers import MAX_KEPT_BYTES, Background, Keep, KeptAnswer, KeptAnswers, Outcome
from tg_gateway.relay.answer_log import (
    CANCEL,
    HEAD,
    WHOLE,
    AnswerLog,
    NameTaken,
    label_claim,
    label_end,
    label_first,
    label_lost,
    label_part,
)
from tg_gateway.relay.answer_writer import AnswerWriter
from tg_gateway.relay.claim import Claim
from tg_gateway.relay.follower_count import FollowerCount
from tg_gateway.relay.live_parts import LiveParts
from tg_gateway.relay.log_watch import SeenLogs, watch
from tg_gateway.relay.written_answers import Written, WrittenAnswers
from tg_schema.errors import BusError, NotFound, TooLarge
from tg_schema.topics import Topics

KEPT_SECONDS: Final = 24 * 3600.0
"""How long an answer can be read."""
_NAME: Final = re.compile(r"[\w-]{1,80}", re.ASCII)
ALIVE_SHARE: Final = 3
"""An answer in the background shows a sign of life this many times within the silence that would count as its death."""
_Steps = AsyncGenerator[bytes | KeptAnswer, None]
_NOT_FOUND: Final = "nothing of this name is kept for this key: it never was, it has expired, or it was deleted"


class AnswerStore:
    """What all keys keep.

    Args:
        bus: has the logs.
        topics: their names.
        clock: wall clock, in seconds.
        scope: tells its answers from those of other stores on this bus: none finds another's.
        seconds: how long an answer can be read.
        silence: seconds without an entry after which the writer of an answer in the background counts as dead.
        max_followers: clients of one key that follow answers side by side.
        max_all_followers: the same, of all keys.
        key_answers: answers that one gateway keeps for one key; the oldest make room.
        key_bytes: the same in bytes.
    """

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        clock: Callable[[], float] = time.time,
        *,
        scope: str = "",
        seconds: float = KEPT_SECONDS,
        silence: float = 15.0,
        max_followers: int = 64,
        max_all_followers: int = 256,
        key_answers: int = 1_000,
        key_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._bus = bus
        self._topics = topics
        self._clock = clock
        self._scope = scope
        self._seconds = seconds
        self._silence = silence
        self._followers = FollowerCount(max_followers, max_all_followers)
        self._seen = SeenLogs(silence, time.monotonic)
        self._written = WrittenAnswers(bus, topics, key_answers, key_bytes)

    def of(self, key: str | None, *, bounded: bool = True, live: LiveParts | None = None) -> KeptAnswers:
        """What this key keeps; without one, what all without a key share.

        Args:
            key: the key's name.
            bounded: whether who follows counts. Who has just begun an answer need not: its answers are bounded, and a
                refusal would not tell it the name of what runs.
            live: the parts of the answer that it has just begun, for who follows it first.
        """
        return _KeyAnswers(self, self._owner(key), bounded, live)

    def _owner(self, key: str | None) -> str:
        """What a log has as its owner: the key's name within this store."""
        return f"{self._scope}{key or ''}"

    async def keep(self, key: str | None, keep: Keep) -> None:
        """Return once it can be read, through any gateway.

        Raises:
            TooLarge: it has more than `MAX_KEPT_BYTES`.
            BusError: the bus did not take it.
        """
        await self._append_first(self._owner(key), keep.name, keep.make(), WHOLE)

    @asynccontextmanager
    async def open(
        self, key: str | None, background: Background, live: LiveParts | None = None
    ) -> AsyncIterator[tuple[AnswerWriter, str]]:
        """Keep an answer while it is made; on entering its head, at the position that comes with it.

        Raises:
            NameTaken: its name is chosen, and somebody else was first.
            TooLarge, BusError: as `keep`.
        """
        owner, name = self._owner(key), background.name
        claim = new_id() if background.chosen else ""
        position = await self._append_first(owner, name, background.head, HEAD, claim=claim)
        if background.chosen:
            await self._check_claim(name, claim)
        async with self._write(background, live=live, claim=claim) as writer:
            yield writer, position

    @asynccontextmanager
    async def go_on(self, background: Background, claim: Claim) -> AsyncIterator[tuple[AnswerWriter, str]]:
        """As `open`, of an answer that has waited, whose head is kept. Raises BusError as `keep`."""
        self._written.mark(background.name, waits=False)
        async with self._write(background, parts=claim.part_count, by=claim.own) as writer:
            yield writer, claim.position

    @asynccontextmanager
    async def _write(
        self, background: Background, *, live: LiveParts | None = None, parts: int = 0, claim: str = "", by: str = ""
    ) -> AsyncIterator[AnswerWriter]:
        name = background.name
        async with self._bus.open_log(self._topics.kept(name)) as log:
            writer = AnswerWriter(
                log,
                keeps_parts=background.keeps_parts,
                alive=self._silence / ALIVE_SHARE,
                limit=self._limit,
                live=live,
                parts=parts,
                claim=claim,
                by=by,
            )
            async with running(writer.run()):
                yield writer
        # It may have been erased while it was made.
        self._written.grow(name, writer.size)
        if writer.freed:
            self._written.mark_free(name, claim)

    async def put(self, key: str | None, background: Background, seconds: float, attempts: int = 1) -> float:
        """Keep an answer that waits for room, before anybody makes it; until when it may wait, by the wall clock.

        Raises:
            TooLarge, BusError: as `keep`.
        """
        name, until = background.name, self._clock() + seconds
        await self._append_first(self._owner(key), name, background.head, HEAD, waits=until, attempts=attempts)
        if background.begin and background.keeps_parts:
            await self._bus.append(self._topics.kept(name), background.begin, label_part(0))
        return until

    async def claim(self, key: str | None, name: str) -> Claim | None:
        """Take an answer that waits; None: it has ended, expired or was erased, or is somebody else's.

        Raises:
            BusError: the bus did not answer; so nobody knows who has it.
        """
        # Before it is a part of a topic's name: what is on the bus may be anybody's.
        if not _NAME.fullmatch(name):
            return None
        claim = Claim(self._bus, self._topics.kept(name))
        await claim.take(lambda: self._load(self._owner(key), name))
        return claim if claim.running else None

    async def give_back(self, name: str, claim: Claim, *, spent: bool = False) -> None:
        """Let an answer wait again that was taken, as `Claim.give_back`. Raises BusError as `claim`."""
        self._written.mark(name, waits=True)
        await claim.give_back(spent=spent)

    async def outlast(self, name: str, claim: Claim) -> bool:
        """Wait until one that somebody else has taken is over, or has no sign of life; whether it waits again.

        Raises:
            BusError: as `claim`.
        """
        async with aclosing(self.watch(name, claim.position)) as entries:
            return await claim.outlast(entries, lambda: self._declare_dead(name, claim.log))

    async def is_waiting(self, key: str | None, name: str) -> bool:
        """Whether no model was asked for it, and it has no end. Raises BusError as `claim`."""
        with suppress(NotFound):
            return (await self._load(self._owner(key), name)).waiting
        return False

    @property
    def _limit(self) -> int:
        return min(MAX_KEPT_BYTES, self._bus.max_message)

    def check_size(self, body: bytes) -> None:
        """See that a first entry can be kept.

        Raises:
            TooLarge: it cannot.
        """
        if len(body) > (limit := self._limit):
            raise TooLarge(f"an answer that is kept has at most {limit} bytes with its input; this one has {len(body)}")

    async def check_free(self, key: str | None, name: str) -> None:
        """See that no answer of this name is kept, or that its end has freed the name.

        Raises:
            NameTaken: neither is so.
            BusError: the bus did not answer.
        """
        with suppress(NotFound):
            if not (await self._load(self._owner(key), name)).free:
                raise NameTaken

    async def _check_claim(self, name: str, claim: str) -> None:
        """Of several who begin one log at a time, the broker's order says who has it."""
        if AnswerLog(await self._bus.read(self._topics.kept(name))).claim != claim:
            self._written.discard(name)
            raise NameTaken

    async def _append_first(
        self,
        owner: str,
        name: str,
        body: bytes,
        kind: str,
        *,
        claim: str = "",
        waits: float | None = None,
        attempts: int = 1,
    ) -> str:
        self.check_size(body)
        expires = (self._clock() if waits is None else waits) + self._seconds
        # Counted first: an append that seems to fail may still arrive.
        self._written.add(name, Written(owner, len(body), expires, waits is not None))
        # With each new answer a few: no task of its own is needed for what has expired.
        await self._written.make_room(owner, self._clock())
        first = label_first(kind, owner, expires, claim, waits, attempts=attempts)
        return await self._bus.append(self._topics.kept(name), body, first)

    async def read(self, owner: str, name: str) -> KeptAnswer:
        """As `KeptAnswers.read`."""
        log = await self._load(owner, name)
        # Its gateway may have died. Then this reader says so in the log, so that all others find it too.
        if log.outcome == "running" and not log.waiting and self._seen.is_silent(name, log.position):
            await self._declare_dead(name, log)
        elif log.is_expired(self._clock()):
            await self.declare(name, log.overdue, claim=log.claim)
        else:
            return log.answer
        return (await self._load(owner, name)).answer

    async def _load(self, owner: str, name: str, head: bytes | None = None) -> AnswerLog:
        if not _NAME.fullmatch(name):
            raise NotFound(_NOT_FOUND)
        log = AnswerLog(await self._bus.read(self._topics.kept(name)))
        # The same words for somebody else's answer as for none: its name must not show that it exists.
        if log.owner != owner or head not in {None, log.answer.head}:
            raise NotFound(_NOT_FOUND)
        # Not `<=`: "nan" reads as a number too.
        if not log.expires > self._clock():
            await self._written.erase(name)
            raise NotFound(_NOT_FOUND)
        return log

    async def declare(self, name: str, outcome: Outcome, body: bytes = b"", *, claim: str = "", by: str = "") -> None:
        """Append an end, as `label_end`, for its writer, which does not answer, or never was. Raises BusError."""
        # What has ended makes room for others.
        self._written.mark(name, waits=False)
        await self._bus.append(self._topics.kept(name), body, label_end(outcome, claim=claim, by=by))

    async def _declare_dead(self, name: str, log: AnswerLog) -> None:
        """Have the log say that its writer is lost: it waits again, or that is its end. Raises BusError as `keep`."""
        if log.repeatable:
            await self._bus.append(self._topics.kept(name), b"", label_lost(log.taker, log.position))
        else:
            # If it has returned it meanwhile, it is none of its end.
            await self.declare(name, "died", claim=log.claim, by=log.taker)

    async def follow(self, owner: str, name: str, head: bytes | None, *, bounded: bool) -> _Steps:
        """As `KeptAnswers.follow`; bounded: whether it counts."""
        # Also where it has ended: until its client has read it, this process holds all of it.
        with self._followers.enter(owner) if bounded else nullcontext():
            log = await self._load(owner, name, head)
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

    async def _follow(self, name: str, log: AnswerLog) -> AsyncGenerator[bytes, None]:
        async with aclosing(self.watch(name, log.position)) as entries:
            async for entry in entries:
                if entry is None:
                    if log.is_expired(self._clock()):
                        await self.declare(name, log.overdue, claim=log.claim)
                    elif log.waiting:
                        yield b""
                    else:
                        await self._declare_dead(name, log)
                    continue
                log.add(entry)
                for part in log.take_parts():
                    yield part
                if log.outcome != "running":
                    return
        raise NotFound(_NOT_FOUND)

    def watch(self, name: str, position: str) -> AsyncGenerator[Entry | None, None]:
        """The entries of an answer behind a position, until it is erased, as `log_watch.watch`."""
        return watch(self._bus, self._topics.kept(name), position, self._silence)

    async def cancel(self, owner: str, name: str, head: bytes | None) -> KeptAnswer:
        """As `KeptAnswers.cancel`. A writer that does not end it within `silence` has the end written for it."""
        log = await self._load(owner, name)
        # Another one has the name only if the one that is meant has ended.
        if head not in {None, log.answer.head}:
            return log.answer
        if log.waiting:
            # Nobody makes it who could be told to stop. Who takes it meanwhile finds this end.
            await self.declare(name, "cancelled", claim=log.claim)
            log = await self._load(owner, name)
        elif log.outcome == "running":
            await self._bus.append(self._topics.kept(name), b"", label_claim(CANCEL, log.claim))
            try:
                async with asyncio.timeout(self._silence), aclosing(self._follow(name, log)) as parts:
                    async for _ in parts:
                        pass
            except TimeoutError:
                await self.declare(name, "cancelled", claim=log.claim)
                log = await self._load(owner, name)
            except NotFound:
                await self.sweep(name)
                raise
        return log.answer

    async def erase(self, owner: str, name: str) -> None:
        """As `KeptAnswers.erase`."""
        await self._load(owner, name)
        await self._written.erase(name)

    async def sweep(self, name: str) -> None:
        """Erase what was appended after an erasure: it has begun a log that nobody would find, and nobody erase."""
        with suppress(BusError):
            await self._written.erase(name)


@dataclass(frozen=True, slots=True)
class _KeyAnswers(KeptAnswers):
    """What one key keeps."""

    store: AnswerStore
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
