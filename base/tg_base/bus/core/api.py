"""Bus -> driver: the interface of every bus, verbs over bytes. `bus/memory.py` is the reference implementation."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """One entry of a log. `Bus.follow` takes its `position`. Entries with equal positions are the same entry."""

    body: bytes
    properties: Mapping[str, str]
    position: str


class Delivery(Protocol):
    """One message as a subscriber receives it."""

    @property
    def body(self) -> bytes:
        """The message, unchanged."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The message's properties. Any peer may have written them, so any of them may be missing.

        Raises:
            BadRequest: a property is not UTF-8; such a message is poison, whatever its body holds.
        """

    @property
    def age(self) -> float:
        """Seconds since it was published: this machine's wall clock now minus the publisher's at publishing.

        The age includes the offset of the two clocks, so it can be negative.
        """

    @property
    def redelivered(self) -> bool:
        """Whether the bus knows that it delivered this message before. False does not prove the contrary."""

    def ack(self) -> None:
        """Acknowledge the message: the bus need not deliver it again. Does not block."""

    def nack(self, after: float = 0.0) -> None:
        """Return the message: a member of the group, perhaps this one, gets it again within about half a second.

        With `after`, the group gets it that many seconds later, or as soon as this member leaves. This process does not
        keep its body meanwhile.

        Does nothing if the message was acknowledged or returned, or if the bus keeps none: without a group, or on a
        non-persistent topic. Does not block.
        """


class LogWriter:
    """Appends to one log, which it holds open. Other writers may append to the same log.

    Args:
        topic: the log's full name.
        append: the driver's function that appends an entry to an open topic.
    """

    def __init__(self, topic: str, append: Callable[[str, bytes, Mapping[str, str]], Awaitable[object]]) -> None:
        self._topic = topic
        self._append = append

    async def append(self, body: bytes, properties: Mapping[str, str]) -> None:
        """Return once the entry is at the end of the log. Appends of one task keep their order.

        Raises:
            TooLarge, BusError: as `Bus.append`.
        """
        await self._append(self._topic, body, properties)


class Bus(Protocol):
    """Carries messages between processes. Chosen by URL in `bus/open.py`.

    Topics are full names: `persistent://tenant/namespace/topic` or `non-persistent://...`. A persistent topic keeps its
    messages for a named group, from the group's first subscription on. A non-persistent topic may drop messages
    silently; its readers must detect that themselves.

    `append`, `open_log`, `read`, `follow` and `erase` use a persistent topic as a log: its entries stay, read or not,
    until they are erased. A topic is either a log or published to, never both.

    Every driver passes `tests/conformance`. A bus is used like this:

        async with bus.subscribe(topic, "workers") as deliveries:
            await bus.publish(topic, b"{}", {"id": "1"})
            async for delivery in deliveries:
                delivery.ack()
    """

    @property
    def max_message(self) -> int:
        """Largest body in bytes: `MAX_MESSAGE_BYTES`, or the lower limit that the broker has reported."""

    @property
    def in_process(self) -> bool:
        """Whether publisher and subscriber are always in one process, so that neither can be dead or partitioned."""

    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        """Return once the bus has accepted the message. Publishes to one topic from one task keep their order.

        Raises:
            BadRequest: `topic` is not a full name.
            TooLarge: the message is over the bus's limit (`max_message`); the topic stays usable.
            BusError: the bus did not accept the message in time. It may still be delivered later.
        """

    def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """Enter to subscribe, iterate to receive, leave to unsubscribe; leaving never loses a message of a group.

        Several tasks may wait for the next message, and each message goes to one of them; a wait that is cancelled
        loses none. The iteration ends when the subscription is left or the bus closed.

        Args:
            topic: what to read.
            group: members of one group share the messages between them, and the group outlives its members;
                None reads every message published from now on, alone.
            prefetch: messages buffered in this process. With 0, a message is taken from the bus only on request, so
                that an idle member gets the next one.

        Raises:
            BadRequest: `topic` is not a full name.
            BusError: on entering, the bus did not answer in time or refused; while iterating, the subscription failed.
        """

    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        """Append one entry; return its position once every later `read` finds it.

        It costs several times as much as a `publish`. To append many entries to one log, use `open_log`.

        Raises:
            BadRequest: `topic` is not a full name, or not persistent.
            TooLarge: the entry is over the bus's limit (`max_message`).
            BusError: the bus did not answer in time, or refused. The entry may still be appended.
        """

    def open_log(self, topic: str) -> AbstractAsyncContextManager[LogWriter]:
        """Enter to append to one log many times, at the cost of a `publish` each.

        Args:
            topic: a log that has an entry: the first one is for `append`.

        Raises:
            BadRequest: on entering, as `append`.
            BusError: on entering, the bus is closed.
        """

    def follow(self, topic: str, after: str) -> AbstractAsyncContextManager[AsyncIterator[Entry]]:
        """Enter to read a log from after a position; iterate to get each entry, including those appended later.

        A wait that is cancelled loses no entry. The iteration ends when the log is erased or the bus closed. While the
        broker cannot be reached, the iteration waits; `read` raises an error instead.

        Args:
            topic: the log.
            after: the position of an entry of this log; reading begins with the next one.

        Raises:
            BadRequest: as `append`, or `after` is not a position.
            BusError: on entering, the bus did not answer in time or refused; while iterating, reading has failed.
        """

    async def read(self, topic: str) -> tuple[Entry, ...]:
        """All entries of the log, in order; empty if there is no log.

        Raises:
            BadRequest: as `append`.
            BusError: the bus did not answer in time, or refused.
        """

    async def erase(self, topic: str) -> None:
        """Return once no later `read` finds any of the entries; the bus may free their space later.

        Raises:
            BadRequest, BusError: as `read`.
        """

    async def ping(self, topic: str | None = None, *, produce: bool = False) -> None:
        """Return once the bus has answered.

        Args:
            topic: also check that we may use this topic; it is not created. None = check the connection alone.
            produce: also check that we may publish to it; nothing is published. A topic that is not there is created.

        Raises:
            BusError: the bus did not answer within a few seconds, has no namespace for the topic, or denies us access.
        """

    async def aclose(self) -> None:
        """Close everything that was opened through this bus. Safe to call twice."""


MAX_MESSAGE_BYTES = 5 * 1024 * 1024 - 16 * 1024
"""Default limit of a body: Pulsar's 5 MiB minus room for properties and framing."""
