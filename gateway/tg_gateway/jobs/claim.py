"""Message of a response -> log: which process makes it; it asks a model, or goes on where another process was.

The order of the log decides. So only one of two processes with the same message asks a model, even if one of them was
wrongly declared dead.
"""

import asyncio
from contextlib import AbstractAsyncContextManager

from tg_base.bus import Entry
from tg_base.client import StreamOrigin
from tg_base.runtime import is_set_within
from tg_base.telemetry import new_id
from tg_gateway.dialects import Background
from tg_gateway.jobs.log import JobLog, claim_of, label_asked, label_end, label_returned
from tg_gateway.jobs.logs import JobLogs
from tg_gateway.jobs.writer import JobWriter
from tg_schema.errors import NotFound


class Claim:
    """Load it first. `note` feeds it the further entries of its log.

    Args:
        logs: has the log.
        owner: whose answer it is, as `JobLogs.owner`.
        name: the name of the answer.

    Attributes:
        owner: as given.
        own: the id that distinguishes it from others' claims.
        log: the state of its log, as far as it was read, without bodies.
        adopted: where an answer goes on, and the lines that it has; None = a model is to be asked.
    """

    def __init__(self, logs: JobLogs, owner: str, name: str) -> None:
        self._logs = logs
        self.owner = owner
        self._name = name
        self.own = new_id()
        self.log = JobLog()
        self.adopted: tuple[StreamOrigin, bytes] | None = None
        self._decided = asyncio.Event()
        self._decided.set()

    @property
    def mine(self) -> bool:
        """Whether this process has it."""
        return self.running and self.log.maker == self.own

    @property
    def lost(self) -> bool:
        """Whether another process has it."""
        return self.running and self.log.maker not in {"", self.own}

    @property
    def running(self) -> bool:
        """Whether the response exists, and had no end when its log was last read."""
        return self.log.owner is not None and self.log.outcome == "running"

    async def load(self) -> bytes:
        """Read its log, and return the lines that it has. Raises BusError: the bus did not answer."""
        try:
            self.log = await self._logs.load(self.owner, self._name)
            if self.running and self.log.cancelled:
                # The process that should stop has returned the response, or was lost.
                end = label_end("cancelled", claim=self.log.claim, by=self.log.maker)
                await self._logs.note(self._name, end)
                self.log = await self._logs.load(self.owner, self._name)
        except NotFound:
            self.log = JobLog()
        lines = b"".join(self.log.take_parts())
        # Release the log's bodies: the response may take long, and only others need them.
        self.log.drop_bodies()
        return lines

    async def take(self) -> None:
        """Claim the answer in its log before a model is asked; `mine` tells whether that has succeeded.

        If another process made it, this one goes on there, and later entries of the other one are void.

        Raises:
            BusError: the bus did not answer, so the owner of the claim is unknown.
        """
        before = self.log
        origin = None if before.origin is None else before.origin._replace(attempt=before.origin.attempt + 1)
        asked = label_asked(self.own, before.maker, origin)
        await self._logs.note(self._name, asked)
        lines = await self.load()
        if self.mine and before.origin is not None:
            self.adopted = before.origin, lines

    def note(self, entry: Entry) -> None:
        """One more entry of the log."""
        self.log.add(entry)
        self.log.drop_bodies()
        if claim_of(entry) == self.own or not self.running:
            self._decided.set()

    async def ask(self, writer: JobWriter, origin: StreamOrigin) -> bool:
        """Log where a model is asked next, and return whether this process may ask.

        Keep noting the log's entries meanwhile.
        """
        self._decided.clear()
        if not await writer.note(label_asked(self.own, self.log.maker, origin)):
            self._decided.set()
            return False
        await self._decided.wait()
        writer.by = self.log.maker
        return self.mine

    async def until_decided(self, seconds: float) -> None:
        """Return once the log has the note that `ask` is appending, or after `seconds`."""
        await is_set_within(self._decided, seconds)

    def write(self, background: Background) -> AbstractAsyncContextManager[JobWriter]:
        """Enter it to write the answer, as `JobLogs.write`."""
        self._logs.written.mark(self._name, waits=False)
        return self._logs.write(background, self.log)

    async def give_back(self, *, spent: bool = False) -> float:
        """Let the response wait again: no model works on it. Raises BusError as `take`.

        Args:
            spent: whether a model may have been asked, so that one attempt is used and a pause follows.

        Returns:
            Seconds of the pause.
        """
        self._logs.written.mark(self._name, waits=True)
        pauses = self._logs.pauses
        resumes = pauses.choose(self.log.attempts, self.log.waits or 0.0) if spent else None
        await self._logs.bus.append(self._logs.topic(self._name), b"", label_returned(self.own, resumes))
        return pauses.measure(resumes or 0.0)
