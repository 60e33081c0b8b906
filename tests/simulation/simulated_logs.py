"""Bus of a process -> broker: logs, whose entries stay until they are erased, also when the broker dies."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from typing_extensions import override

from tests.simulation.simulated_wire import SimulatedWire
from tg_base.bus import Entry
from tg_base.bus.core.wait_queue import WaitQueue
from tg_schema.errors import BadRequest


@dataclass(eq=False)
class _Log:
    """The entries since the last erasure, and the number of the first one."""

    first: int = 0
    entries: list[Entry] = field(default_factory=list)
    readers: "list[LogReader]" = field(default_factory=list)


class SimulatedLogs:
    """All logs of a broker."""

    def __init__(self) -> None:
        self._logs: defaultdict[str, _Log] = defaultdict(_Log)

    def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        """One more entry; its position."""
        log = self._logs[topic]
        entry = Entry(body, dict(properties), str(log.first + len(log.entries)))
        log.entries.append(entry)
        for reader in log.readers:
            reader.send(entry)
        return entry.position

    def read(self, topic: str) -> tuple[Entry, ...]:
        """What is in it."""
        return tuple(self._logs[topic].entries)

    def erase(self, topic: str) -> None:
        """Nothing is in it any more, and nobody follows it."""
        log = self._logs[topic]
        log.first += len(log.entries)
        log.entries.clear()
        for reader in log.readers:
            reader.send(None)
        log.readers.clear()

    def attach(self, reader: "LogReader") -> None:
        """Send a reader what it has not seen, and what comes."""
        log = self._logs[reader.topic]
        if reader.after < log.first - 1 or (reader.after >= 0 and not log.entries):
            reader.send(None)
            return
        for entry in log.entries[max(reader.after + 1 - log.first, 0) :]:
            reader.send(entry)
        if reader not in log.readers:
            log.readers.append(reader)

    def detach(self, reader: "LogReader") -> None:
        """It reads no more."""
        readers = self._logs[reader.topic].readers
        if reader in readers:
            readers.remove(reader)

    def crash(self) -> None:
        """The broker dies: its connections are gone, what it has stored is not."""
        for log in self._logs.values():
            log.readers.clear()


class LogReader(AsyncIterator[Entry]):
    """Follows one log from one life of a process.

    Args:
        wire: its connection.
        topic: the log.
        after: the position of the last entry that it knows.
        touch: called when something has come.

    Raises:
        BadRequest: `after` is not a position.
    """

    def __init__(self, wire: SimulatedWire, topic: str, after: str, touch: Callable[[], None]) -> None:
        if not after.isdecimal():
            raise BadRequest("not a position: give the position of an entry")
        self.topic = topic
        self.after = int(after)
        self._wire = wire
        self._touch = touch
        self._entries: list[Entry] = []
        self._over = False
        self._waiting = WaitQueue()

    def send(self, entry: Entry | None) -> None:
        """At the broker: one more entry; None = it is erased."""
        self._wire.inward.send(self._arrive, entry)

    def _arrive(self, entry: Entry | None) -> None:
        if entry is None:
            self._over = True
        # After a connection was lost, what had come before it comes again.
        elif int(entry.position) > self.after:
            self.after = int(entry.position)
            self._entries.append(entry)
        self._waiting.wake_all()
        self._touch()

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Entry:
        while not self._entries:
            if self._over:
                raise StopAsyncIteration
            await self._waiting.wait()
        return self._entries.pop(0)
