"""What every bus must do: four verbs over bytes. `memory.py` is the reference, `pulsar.py` the real one."""

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
        """The message's properties; any peer may have written them, so none is certain to be there."""

    @property
    def age(self) -> float:
        """Seconds since it was published, by the clocks of the publisher and of this machine; never negative."""

    def ack(self) -> None:
        """Tell the bus that this message is ours and need not be delivered again. Does not block."""


class Bus(Protocol):
    """A way for messages to travel. Chosen by URL in `open.py`.

    Topics are full names: `persistent://tenant/namespace/topic` or `non-persistent://...`. Whatever is published on a
    persistent topic is kept for a named group, from the group's first subscription on; a non-persistent topic may
    drop in silence, and its readers must notice by themselves.
    """

    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        """Return once the bus has the message; publishes to one topic from one task keep their order.

        Raises:
            BadRequest: `topic` is not a full name.
            TooLarge: the message is over the bus's limit (`MAX_MESSAGE`); the topic stays usable.
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


MAX_MESSAGE = 5 * 1024 * 1024 - 16 * 1024
"""Bytes of body that every bus carries: Pulsar's 5 MiB less room for properties and framing."""
