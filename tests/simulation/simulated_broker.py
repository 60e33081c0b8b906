"""Wires -> topics -> wires: a broker that keeps what it must, drops what it may, and can die."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from tests.simulation.simulated_logs import SimulatedLogs
from tests.simulation.simulated_wire import SimulatedWire
from tests.simulation.simulator import Simulator

GIVEN_BACK = 0.4
"""Seconds until a message that was given back is handed out again."""


@dataclass(eq=False)
class Message:
    """What was published.

    Attributes:
        properties: None = they cannot be read.
        published: by the publisher's wall clock.
        redelivered: whether the broker knows that it has handed this out before.
    """

    body: bytes
    properties: Mapping[str, str] | None
    published: float
    redelivered: bool = False
    number: int = field(default_factory=count().__next__)


def name_is_persistent(topic: str) -> bool:
    """Whether a topic keeps what it was given."""
    return topic.startswith("persistent:")


class Consumer(Protocol):
    """The other end of a subscription, in a process."""

    topic: str
    group: str | None
    wire: SimulatedWire

    def arrive(self, seat: "Seat", message: Message, redelivered: bool) -> None:
        """A message has come."""


@dataclass(eq=False)
class Seat:
    """One consumer, as the broker knows it."""

    consumer: Consumer
    permits: int
    open: bool = True
    held: dict[int, Message] = field(default_factory=dict)


@dataclass(eq=False)
class Group:
    """What waits for the members of a group, and what was acknowledged lately."""

    waiting: deque[Message] = field(default_factory=deque)
    seats: list[Seat] = field(default_factory=list)
    acknowledged: deque[tuple[float, Message]] = field(default_factory=deque)


@dataclass(eq=False)
class Topic:
    """One topic's groups and readers; the former only where it is persistent."""

    persistent: bool
    groups: dict[str, Group] = field(default_factory=dict)
    alone: list[Seat] = field(default_factory=list)


class SimulatedBroker:
    """The broker.

    Attributes:
        up: whether it runs.
        max_message: bytes of body that it takes.
        told_max_message: what its clients know of that.
        refused: topics that nobody may subscribe to.
        swallowed: called with a message that is handed to a process which is dead.
        taken: called with the topic and each message that is published to it.
        logs: topics that are logs.
        dropped: topic and time of each message that was lost.
    """

    def __init__(self, simulator: Simulator, max_message: int, told_max_message: int) -> None:
        self.up = True
        self.max_message = max_message
        self.told_max_message = told_max_message
        self.refused: set[str] = set()
        self.swallowed: Callable[[Message], None] = lambda message: None
        self.taken: Callable[[str, Message], None] = lambda topic, message: None
        self.logs = SimulatedLogs()
        self.dropped: list[tuple[str, float]] = []
        self._simulator = simulator
        self._topics: dict[str, Topic] = {}

    def topic(self, name: str) -> Topic:
        """The topic of that name, made where there is none."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Topic(name_is_persistent(name))
        return topic

    def take(self, name: str, message: Message) -> bool:
        """Keep a message, or pass it on; False where nobody is up to do it."""
        if not self.up:
            return False
        self.taken(name, message)
        topic = self.topic(name)
        for group in topic.groups.values():
            group.waiting.append(message)
            self._hand_out(group)
        random, weather = self._simulator.random.random, self._simulator.weather
        for seat in tuple(topic.alone):
            if not topic.persistent and weather.loss and random() < weather.loss:
                self._simulator.note("broker", "drops", name)
                self.dropped.append((name, self._simulator.now))
                continue
            self._pass_on(seat, message)
            if weather.repetition and random() < weather.repetition:
                self._pass_on(seat, message)
        return True

    def _pass_on(self, seat: Seat, message: Message) -> None:
        ordered = name_is_persistent(seat.consumer.topic)
        seat.consumer.wire.inward.send(seat.consumer.arrive, seat, message, False, ordered=ordered)

    def attach(self, consumer: Consumer, permits: int) -> Seat:
        """Begin to hand out to a consumer."""
        topic, seat = self.topic(consumer.topic), Seat(consumer, permits)
        if consumer.group is None:
            topic.alone.append(seat)
        else:
            group = topic.groups.setdefault(consumer.group, Group())
            group.seats.append(seat)
            self._hand_out(group)
        return seat

    def detach(self, seat: Seat) -> None:
        """A consumer is gone: what it has not acknowledged is handed out again, and nothing tells (measured)."""
        if not seat.open:
            return
        seat.open = False
        topic, group = self._place(seat)
        if group is None:
            topic.alone.remove(seat)
            return
        group.seats.remove(seat)
        group.waiting.extendleft(reversed(seat.held.values()))
        seat.held.clear()
        self._hand_out(group)

    def permit(self, seat: Seat, permits: int) -> None:
        """A consumer wants more."""
        _, group = self._place(seat)
        if seat.open and group is not None:
            seat.permits += permits
            self._hand_out(group)

    def acknowledge(self, seat: Seat, message: Message) -> None:
        """A message is done with, whoever has it now."""
        _, group = self._place(seat)
        if group is None or not self.up:
            return
        for other in group.seats:
            other.held.pop(message.number, None)
        seat.held.pop(message.number, None)
        if message in group.waiting:
            group.waiting.remove(message)
        group.acknowledged.append((self._simulator.now, message))

    def give_back(self, seat: Seat, message: Message, after: float = 0.0) -> None:
        """A consumer wants a message to go to somebody else, or to come again; perhaps later."""
        if seat.held.pop(message.number, None) is not None:
            message.redelivered = True
            self._simulator.after(after + GIVEN_BACK * self._simulator.random.random(), self._again, seat, message)

    def _again(self, seat: Seat, message: Message) -> None:
        _, group = self._place(seat)
        if group is not None:
            group.waiting.appendleft(message)
            self._hand_out(group)

    def left(self) -> list[str]:
        """Topics with messages that nobody has acknowledged, unless a dead process holds them unnoticed."""
        return [
            name
            for name, topic in self._topics.items()
            for group in topic.groups.values()
            if group.waiting or any(seat.held for seat in group.seats if seat.consumer.wire.open)
        ]

    def crash(self, forgets: float) -> None:
        """Die: who is connected is not any more, and what was acknowledged in the last seconds comes again."""
        self._simulator.note("broker", "dies", forgets)
        self.up = False
        self.logs.crash()
        since = self._simulator.now - forgets
        for topic in self._topics.values():
            for seat in (*topic.alone, *(seat for group in topic.groups.values() for seat in group.seats)):
                seat.open = False
            topic.alone.clear()
            for group in topic.groups.values():
                messages = [message for seat in group.seats for message in seat.held.values()]
                messages += [message for time, message in group.acknowledged if time >= since]
                messages += group.waiting
                for message in messages:
                    message.redelivered = False  # the count was in its memory
                messages.sort(key=lambda message: message.number)
                group.waiting = deque(messages)
                group.seats.clear()
                group.acknowledged.clear()

    def start(self) -> None:
        """Live again."""
        self._simulator.note("broker", "starts")
        self.up = True

    def _place(self, seat: Seat) -> tuple[Topic, Group | None]:
        topic = self.topic(seat.consumer.topic)
        return topic, None if seat.consumer.group is None else topic.groups.get(seat.consumer.group)

    def _hand_out(self, group: Group) -> None:
        simulator = self._simulator
        while group.waiting and self.up:
            seats = [seat for seat in group.seats if seat.permits > 0]
            if not seats:
                return
            seat = seats[int(simulator.random.random() * len(seats))] if len(seats) > 1 else seats[0]
            message = group.waiting.popleft()
            seat.permits -= 1
            seat.held[message.number] = message
            if not seat.consumer.wire.open:
                self.swallowed(message)
            simulator.note("broker", "hands", seat.consumer.wire.process.name, message.properties)
            seat.consumer.wire.inward.send(seat.consumer.arrive, seat, message, message.redelivered)
