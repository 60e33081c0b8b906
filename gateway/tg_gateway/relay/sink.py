"""A running request -> its client: where events go, whatever the door."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from tg_gateway.dialects import Output


class Sink(Protocol):
    """One client's end of one stream. Writing never waits; a slow client is waited for explicitly, with a bound."""

    __slots__ = ()

    def send(self, data: Output, *, last: bool) -> None:
        """Write a writer's output, which may be empty; nothing follows the last.

        `drain` writes large outputs: wait for it while the client is `full`, also after the last one.
        """

    @property
    def full(self) -> bool:
        """Whether the client does not keep up."""

    def hold(self, size: int) -> None:
        """`size` bytes are buffered for this client; a shared sink may close this stream to free memory.

        A sink of one stream alone does nothing, since the stream's own buffer is bounded.
        """
        return

    async def drain(self) -> None:
        """Return once the client has caught up.

        Raises:
            SlowConsumer: the client read too slowly for too long; its connection is cut.
        """
        return


async def send_parts(parts: AsyncGenerator[bytes, None], sink: Sink) -> None:
    """Send the parts of an answer as fast as its client takes them, and close them."""
    # Close them now, not at some garbage collection: they may hold a subscription.
    async with aclosing(parts):
        async for part in parts:
            sink.send(part, last=False)
            while sink.full:
                await sink.drain()
    sink.send(b"", last=True)
