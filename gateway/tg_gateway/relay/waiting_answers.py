"""Band -> logs: answers that wait for room, before a gateway makes them and while they go from one to another."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

from tg_gateway.dialects.answers import Background
from tg_gateway.relay.answer_log import HEAD, label_part
from tg_gateway.relay.answer_logs import AnswerLogs, is_name
from tg_gateway.relay.answer_writer import AnswerWriter
from tg_gateway.relay.claim import Claim
from tg_schema.errors import NotFound


class WaitingAnswers:
    """Those of one store.

    Args:
        logs: of the store.
    """

    def __init__(self, logs: AnswerLogs) -> None:
        self._logs = logs

    async def put(self, key: str | None, background: Background, seconds: float, attempts: int = 1) -> float:
        """Keep an answer that waits for room, before anybody makes it; until when it may wait, by the wall clock.

        Raises:
            TooLarge, BusError: as `AnswerLogs.begin`.
        """
        name, until = background.name, self._logs.clock() + seconds
        await self._logs.begin(self._logs.owner(key), name, background.head, HEAD, waits=until, attempts=attempts)
        if background.begin and background.keeps_parts:
            await self._logs.bus.append(self._logs.topic(name), background.begin, label_part(0))
        return until

    async def claim(self, key: str | None, name: str) -> Claim | None:
        """Take an answer that waits; None: it has ended, expired or was erased, or is somebody else's.

        Raises:
            BusError: the bus did not answer; so nobody knows who has it.
        """
        # Before it is a part of a topic's name: what is on the bus may be anybody's.
        if not is_name(name):
            return None
        claim = Claim(self._logs.bus, self._logs.topic(name))
        await claim.take(lambda: self._logs.load(self._logs.owner(key), name))
        return claim if claim.running else None

    @asynccontextmanager
    async def go_on(self, background: Background, claim: Claim) -> AsyncIterator[tuple[AnswerWriter, str]]:
        """Write one that was taken; on entering the position behind which its log is new. Raises BusError."""
        self._logs.written.mark(background.name, waits=False)
        async with self._logs.write(background, parts=claim.part_count, by=claim.own) as writer:
            yield writer, claim.position

    async def give_back(self, name: str, claim: Claim, *, spent: bool = False) -> None:
        """Let an answer wait again that was taken, as `Claim.give_back`. Raises BusError as `claim`."""
        self._logs.written.mark(name, waits=True)
        await claim.give_back(spent=spent)

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
            return (await self._logs.load(self._logs.owner(key), name)).waiting
        return False
