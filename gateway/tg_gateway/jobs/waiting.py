"""Flex queue -> logs: answers that wait for room, before a gateway makes them and while they go from one to another."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

from tg_gateway.dialects.answers import Background
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.log import HEAD, label_part
from tg_gateway.jobs.logs import JobLogs, is_name
from tg_gateway.jobs.writer import JobWriter
from tg_schema.errors import NotFound


class WaitingJobs:
    """The waiting answers of one store.

    Args:
        logs: of the store.
    """

    def __init__(self, logs: JobLogs) -> None:
        self._logs = logs

    async def put(self, key: str | None, background: Background, seconds: float, attempts: int = 1) -> float:
        """Keep an answer that waits for room, before anybody makes it; until when it may wait, by the wall clock.

        Raises:
            TooLarge, BusError: as `JobLogs.begin`.
        """
        name, until = background.name, self._logs.clock() + seconds
        await self._logs.begin(
            self._logs.owner(key),
            name,
            background.head,
            HEAD,
            seconds=background.seconds,
            waits=until,
            attempts=attempts,
        )
        if background.begin and background.keeps_parts:
            await self._logs.bus.append(self._logs.topic(name), background.begin, label_part(0))
        return until

    async def claim(self, key: str | None, name: str) -> Claim:
        """Take an answer that waits. It does not run if it has ended, expired or was erased, or is somebody else's.

        Raises:
            BusError: the bus did not answer; so nobody knows who has it.
        """
        claim = Claim(self._logs.bus, self._logs.topic(name))
        # Before it is a part of a topic's name: what is on the bus may be anybody's.
        if is_name(name):
            await claim.take(lambda: self._logs.load(self._logs.owner(key), name))
        return claim

    def measure_pause(self, claim: Claim) -> float:
        """Seconds until the next attempt may begin."""
        return self._logs.pauses.measure(claim.log.resumes)

    async def reload(self, key: str | None, name: str, claim: Claim) -> None:
        """Find what has become of one after its pause. Raises BusError as `claim`."""
        await claim.reload(lambda: self._logs.load(self._logs.owner(key), name))

    @asynccontextmanager
    async def go_on(self, background: Background, claim: Claim) -> AsyncIterator[tuple[JobWriter, str]]:
        """Write one that was taken; on entering the position behind which its log is new. Raises BusError."""
        self._logs.written.mark(background.name, waits=False)
        async with self._logs.write(background, parts=claim.part_count, by=claim.own) as writer:
            yield writer, claim.position

    async def give_back(self, name: str, claim: Claim, *, spent: bool = False) -> None:
        """Let an answer wait again that was taken. Raises BusError as `claim`.

        Args:
            name: of the answer.
            claim: of who had taken it.
            spent: whether a model may have been asked for it, so that one attempt is used, and a pause follows.
        """
        self._logs.written.mark(name, waits=True)
        log = claim.log
        await claim.give_back(self._logs.pauses.choose(log.attempts, log.waits or 0.0) if spent else None)

    async def outlast(self, name: str, claim: Claim) -> bool:
        """Wait until one that somebody else has taken is over, or has no sign of life; whether it waits again.

        Raises:
            BusError: as `claim`.
        """
        async with aclosing(self._logs.watch(name, claim.position)) as entries:
            return await claim.outlast(entries, lambda: self._logs.declare_dead(name, claim.log))

    async def contains(self, key: str | None, name: str) -> bool:
        """Whether no model was asked for it, and it has no end. Raises BusError as `claim`."""
        with suppress(NotFound):
            if (await self._logs.load(self._logs.owner(key), name)).waiting:
                return True
            # Others do not count what this gateway has put.
            self.count_kept(name)
        return False

    def count_kept(self, name: str) -> None:
        """One that has left the flex queue, or whose time is over, counts among those that are kept."""
        self._logs.written.mark(name, waits=False)
