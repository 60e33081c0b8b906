"""One process -> the simulated broker: the bus as its code sees it."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from typing_extensions import override

from tests.simulation.simulated_broker import Message, Seat, SimulatedBroker, name_is_persistent
from tests.simulation.simulated_logs import LogReader
from tg_base.bus import Bus, Delivery, Entry, LogWriter
from tg_base.bus.core.wait_queue import WaitQueue
from tg_schema import TgError
from tg_schema.errors import BadRequest, BusError, TooLarge

if TYPE_CHECKING:
    from tests.simulation.simulated_process import SimulatedProcess

T = TypeVar("T")

SEND_TIMEOUT = 5.0
"""Seconds that a publish, or a call, waits for the broker's word."""
LEAVE_TIMEOUT = 1.0
RESUBSCRIBE_SECONDS = 1.0
"""Seconds after which the client asks again where the broker refused a subscription that was open before."""
GROUPING = 0.1
"""Seconds for which the client gathers acknowledgements."""
_CLOCKS = re.compile(rb',"(?:queued|began|first|ended)_at":[0-9]+')
"""In records of usage, where the real wall clock stands: no other run has it."""


class SimulatedBus(Bus):
    """The bus of one life of a process. Same promises as Pulsar's, same ways to break them.

    Attributes:
        readers: the open subscriptions; the simulation may end one.
    """

    def __init__(self, process: "SimulatedProcess", broker: SimulatedBroker) -> None:
        self.readers: list[SimulatedReader] = []
        self.on_publish: Callable[[str, bytes, Mapping[str, str]], None] = lambda topic, body, properties: None
        self._process = process
        self._simulator = process.simulator
        self._loop = process.loop
        self._wire = process.wire
        self._broker = broker
        self._pending: dict[int, tuple[asyncio.Future[None], str, Message]] = {}
        self._log_readers: list[LogReader] = []
        self._unsent: dict[int, tuple[Seat, Message]] = {}
        self._closed = False

    @property
    @override
    def max_message(self) -> int:
        return self._broker.told_max_message

    @property
    @override
    def in_process(self) -> bool:
        return False

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        self._check_open()
        if len(body) > self._broker.max_message:
            raise TooLarge(f"a message holds at most {self._broker.max_message} bytes; this one has {len(body)}")
        self.on_publish(topic, body, properties)
        message = Message(body, dict(properties), self._process.wall)
        done: asyncio.Future[None] = self._loop.create_future()
        self._pending[message.number] = done, topic, message
        timer = self._loop.call_later(SEND_TIMEOUT, _fail, done)
        self._simulator.note(self._process.name, "publishes", topic, properties, _CLOCKS.sub(b"", body))
        self._wire.outward.send(self._publish, topic, message, ordered=name_is_persistent(topic))
        try:
            await done
        finally:
            timer.cancel()
            self._pending.pop(message.number, None)

    def _publish(self, topic: str, message: Message) -> None:
        if self._broker.take(topic, message):
            self._wire.inward.send(self._published, message.number)
            weather, random = self._simulator.weather, self._simulator.random.random
            if weather.repetition and random() < weather.repetition:
                # Half of them so soon that their age does not tell.
                self._simulator.after(random() ** 4, self._broker.take, topic, message)

    def _published(self, number: int) -> None:
        pending = self._pending.get(number)
        if pending is not None and not pending[0].done():
            pending[0].set_result(None)

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        self._check_open()
        self._simulator.note(self._process.name, "appends", topic, properties, body)
        return await self._call(SEND_TIMEOUT, lambda: self._broker.logs.append(topic, body, properties))

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        self._check_open()
        yield LogWriter(topic, self.append)

    @override
    @asynccontextmanager
    async def follow(self, topic: str, after: str) -> AsyncIterator[AsyncIterator[Entry]]:
        self._check_open()
        reader = LogReader(self._wire, topic, after, self._process.touch)
        self._log_readers.append(reader)
        try:
            await self._call(SEND_TIMEOUT, lambda: self._broker.logs.attach(reader))
            yield reader
        finally:
            self._log_readers.remove(reader)
            self._wire.outward.send(self._broker.logs.detach, reader)

    @override
    async def read(self, topic: str) -> tuple[Entry, ...]:
        self._check_open()
        return await self._call(SEND_TIMEOUT, lambda: self._broker.logs.read(topic))

    @override
    async def erase(self, topic: str) -> None:
        self._check_open()
        await self._call(SEND_TIMEOUT, lambda: self._broker.logs.erase(topic))

    @override
    @asynccontextmanager
    async def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        self._check_open()
        reader = SimulatedReader(self, topic, group, prefetch)
        try:
            await self._call(SEND_TIMEOUT, reader.attach)
            if reader.refused:
                raise BusError("the broker refused (TopicTerminated); try again")
        except (asyncio.CancelledError, BusError):
            reader.end()  # one that is opened too late is not wanted any more
            self._wire.outward.send(reader.detach)
            raise
        self.readers.append(reader)
        try:
            yield reader
        finally:
            reader.end()
            self._flush()
            if reader in self.readers:
                self.readers.remove(reader)
            if not self._closed:
                with suppress(BusError):
                    await self._call(LEAVE_TIMEOUT, reader.detach)

    async def _call(self, seconds: float, work: Callable[[], T]) -> T:
        done: asyncio.Future[T] = self._loop.create_future()
        timer = self._loop.call_later(seconds, _fail, done)

        def answer(result: T) -> None:
            if not done.done():
                done.set_result(result)

        def ask() -> None:
            if self._broker.up:
                self._wire.inward.send(answer, work())

        self._wire.outward.send(ask)
        try:
            return await done
        finally:
            timer.cancel()

    @override
    async def ping(self, topic: str | None = None, *, produce: bool = False) -> None:
        self._check_open()
        await self._call(SEND_TIMEOUT, lambda: None)

    @override
    async def aclose(self) -> None:
        self._closed = True
        for reader in tuple(self.readers):
            reader.end()
            self._wire.outward.send(reader.detach)

    def reconnect(self) -> None:
        """The broker is back: subscribe again, and send again what it has not confirmed."""
        for reader in self.readers:
            self._attach_again(reader)
        for follower in self._log_readers:
            self._wire.outward.send(self._broker.logs.attach, follower)
        for done, topic, message in tuple(self._pending.values()):
            if not done.done():
                self._wire.outward.send(self._publish, topic, message)

    def _attach_again(self, reader: "SimulatedReader") -> None:
        """As Pulsar's client, which asks again for as long as the broker refuses."""
        if self._process.alive and reader in self.readers:
            reader.attach()
            if reader.refused:
                self._simulator.after(RESUBSCRIBE_SECONDS, self._attach_again, reader)

    def disconnect(self) -> None:
        """The process is dead, and the broker knows."""
        for reader in self.readers:
            reader.detach()

    def acknowledge(self, seat: Seat, message: Message) -> None:
        """Tell the broker, together with others."""
        if not self._unsent:
            self._simulator.after(GROUPING * self._simulator.random.random(), self._group)
        self._unsent[message.number] = seat, message

    def _group(self) -> None:
        if self._wire.open and self._process.paused:
            self._simulator.after(GROUPING, self._group)
        elif self._wire.open:
            self._flush()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for seat, message in unsent.values():
            self._wire.outward.send(self._broker.acknowledge, seat, message)

    def _check_open(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")


class SimulatedReader(AsyncIterator[Delivery]):
    """One subscription. Several tasks may wait; each message goes to one of them."""

    def __init__(self, bus: SimulatedBus, topic: str, group: str | None, prefetch: int) -> None:
        self.topic = topic
        self.group = group
        self.wire = bus._wire
        self._bus = bus
        self.refused = False
        self._prefetch = prefetch
        self._items: deque[SimulatedDelivery] = deque()
        self._waiting = WaitQueue()
        self._asked = 0
        self._wanted = 0
        self._seat: Seat | None = None
        self._ended = False
        self._error: TgError | None = None

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Delivery:
        while not self._ended:
            if self._items:
                delivery = self._items.popleft()
                if self.group is not None and self._prefetch:
                    self._permit()
                return delivery
            self._wanted += 1
            if self.group is not None and not self._prefetch and self._asked < self._wanted:
                self._permit()
            try:
                await self._waiting.wait()
            finally:
                self._wanted -= 1
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    def arrive(self, seat: Seat, message: Message, redelivered: bool) -> None:
        """A message has come."""
        if seat is self._seat and not self._ended:
            self._asked -= 1
            self._items.append(SimulatedDelivery(self._bus, seat, message, redelivered))
            self._waiting.wake()

    def attach(self) -> None:
        """At the broker: begin."""
        self.refused = self.topic in self._bus._broker.refused
        if not self._ended and not self.refused and self._bus._process.wire is self.wire:
            self.detach()  # a connection that was opened anew has no other seat
            self._asked = max((self._prefetch or self._wanted) - len(self._items), 0)
            self._seat = self._bus._broker.attach(self, self._asked)

    def detach(self) -> None:
        """At the broker: end."""
        if self._seat is not None:
            self._bus._broker.detach(self._seat)

    def end(self, error: TgError | None = None) -> None:
        """Let nobody wait any longer: they get the error, or the end of the iteration."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._waiting.wake_all()

    def _permit(self) -> None:
        self._asked += 1
        if self._seat is not None:
            self.wire.outward.send(self._bus._broker.permit, self._seat, 1)


class SimulatedDelivery:
    """One message as it came to one process."""

    __slots__ = ("_bus", "_done", "_message", "_seat", "body", "redelivered")

    def __init__(self, bus: SimulatedBus, seat: Seat, message: Message, redelivered: bool) -> None:
        self._bus = bus
        self._seat = seat
        self._message = message
        self._done = seat.consumer.group is None
        self.body = message.body
        self.redelivered = redelivered

    @property
    def properties(self) -> Mapping[str, str]:
        if self._message.properties is None:
            raise BadRequest("the message's properties are not UTF-8")
        return self._message.properties

    @property
    def age(self) -> float:
        return self._bus._process.wall - self._message.published

    def ack(self) -> None:
        """Done with."""
        if not self._done:
            self._done = True
            self._bus.acknowledge(self._seat, self._message)

    def nack(self, after: float = 0.0) -> None:
        """Not for me."""
        if not self._done:
            self._done = True
            self._bus._wire.outward.send(self._bus._broker.give_back, self._seat, self._message, after)


def _fail(done: "asyncio.Future[Any]") -> None:
    if not done.done():
        done.set_exception(BusError("the broker did not answer in time; try again"))
