"""What every bus must do: four verbs over bytes. `bus/memory.py` is the reference, `bus/pulsar` the real one."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Delivery(Protocol):
    """One message as a subscriber gets it."""

    @property
    def body(self) -> bytes:
        """The message as it was published."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The message's properties; any peer may have written them, so none is certain to be there.

        Raises:
            BadRequest: they are no text (UTF-8); such a message is poison, whatever its body says.
        """

    @property
    def age(self) -> float:
        """Seconds since it was published: this machine's wall clock now, less the publisher's when it published.

        Wrong by the difference of the two clocks, and so perhaps negative.
        """

    @property
    def redelivered(self) -> bool:
        """Whether the bus says that it has handed this message out before. False does not prove the contrary."""

    def ack(self) -> None:
        """Tell the bus that this message is ours and need not be delivered again. Does not block."""

    def nack(self) -> None:
        """Give the message back: a member of the group, perhaps this one, gets it about half a second later at most.

        Does nothing on a message that was acknowledged or given back, and where the bus keeps none: without a group,
        or on a non-persistent topic. Does not block.
        """


class Bus(Protocol):
    """A way for messages to travel. Chosen by URL in `bus/open.py`.

    Topics are full names: `persistent://tenant/namespace/topic` or `non-persistent://...`. Whatever is published on a
    persistent topic is kept for a named group, from the group's first subscription on; a non-persistent topic may
    drop in silence, and its readers must notice by themselves.
    """

    @property
    def max_message(self) -> int:
        """Bytes of body that this bus carries: `MAX_MESSAGE_BYTES`, or the lower limit that it has reported."""

    @property
    def in_process(self) -> bool:
        """Whether publisher and subscriber are always the same process, so that neither can be dead or cut off."""

    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        """Return once the bus has the message; publishes to one topic from one task keep their order.

        Raises:
            BadRequest: `topic` is not a full name.
            TooLarge: the message is over the bus's limit (`max_message`); the topic stays usable.
            BusError: the bus did not take the message. It may be delivered all the same, later.
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
            prefetch: how many messages may wait in this process. 0 takes one from the bus only when it is asked for,
                so that whoever is idle takes the next.

        Raises:
            BadRequest: `topic` is not a full name.
            BusError: on entering, the bus did not answer in time or refused; in the iteration, it ended the reading.
        """

    async def ping(self) -> None:
        """Return once the bus has answered.

        Raises:
            BusError: it did not, within a few seconds.
        """

    async def aclose(self) -> None:
        """Close everything that was opened through this bus. Safe to call twice."""


MAX_MESSAGE_BYTES = 5 * 1024 * 1024 - 16 * 1024
"""Bytes of body that a bus carries unless it says less: Pulsar's 5 MiB less room for properties and framing."""
