"""Flex queue -> logs: responses that wait for capacity, before a gateway makes them and between two gateways."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

from tg_gateway.dialects import Background
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.log import HEAD, label_part
from tg_gateway.jobs.logs import JobLogs, is_name
from tg_gateway.jobs.writer import JobWriter
from tg_schema.errors import NotFound


class WaitingJobs:
    """The waiting answers of one store.

    Args:
        logs: the logs of the store.
    """

    def __init__(self, logs: JobLogs) -> None:
        self._logs = logs

    async def put(self, key: str | None, background: Background, seconds: float, attempts: int = 1) -> float:
        """Store a response that waits for capacity; returns until when it may wait, by the wall clock.

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
        """Take a waiting response.

        The claim is not running if it has ended, expired, was erased, or is another gateway's.

        Raises:
            BusError: the bus did not answer, so its owner is unknown.
        """
        claim = Claim(self._logs.bus, self._logs.topic(name))
        # Check the name before it becomes part of a topic's name: anybody may have put it on the bus.
        if is_name(name):
            await claim.take(lambda: self._logs.load(self._logs.owner(key), name))
        return claim

    def measure_pause(self, claim: Claim) -> float:
        """Seconds until the next attempt may begin."""
        return self._logs.pauses.measure(claim.log.resumes)

    async def reload(self, key: str | None, name: str, claim: Claim) -> None:
        """Read the state of a response again after its pause. Raises BusError as `claim`."""
        await claim.reload(lambda: self._logs.load(self._logs.owner(key), name))

    @asynccontextmanager
    async def go_on(self, background: Background, claim: Claim) -> AsyncIterator[tuple[JobWriter, str]]:
        """Write a taken response. Entering gives the position after which its log is new. Raises BusError."""
        self._logs.written.mark(background.name, waits=False)
        async with self._logs.write(background, parts=claim.part_count, by=claim.own) as writer:
            yield writer, claim.position

    async def give_back(self, name: str, claim: Claim, *, spent: bool = False) -> None:
        """Let a taken response wait again. Raises BusError as `claim`.

        Args:
            name: the name of the answer.
            claim: the claim of the gateway that had taken it.
            spent: whether a model may have been asked, so that one attempt is used and a pause follows.
        """
        self._logs.written.mark(name, waits=True)
        log = claim.log
        await claim.give_back(self._logs.pauses.choose(log.attempts, log.waits or 0.0) if spent else None)

    async def outlast(self, name: str, claim: Claim) -> bool:
        """Wait until a response that another gateway took is over or silent; returns whether it waits again.

        Raises:
            BusError: as `claim`.
        """
        async with aclosing(self._logs.watch(name, claim.position)) as entries:
            return await claim.outlast(entries, lambda: self._logs.declare_dead(name, claim.log))

    async def contains(self, key: str | None, name: str) -> bool:
        """Whether no model was asked, and it has no end. Raises BusError as `claim`."""
        with suppress(NotFound):
            if (await self._logs.load(self._logs.owner(key), name)).waiting:
                return True
            # Other gateways do not count what this gateway has queued.
            self.count_kept(name)
        return False

    def count_kept(self, name: str) -> None:
        """A response that left the flex queue, or whose time is over, counts as kept."""
        self._logs.written.mark(name, waits=False)
