"""A running request -> its client: where events go, whatever the door."""

from typing import Protocol

from tg_gateway.dialects.output import Output


class Sink(Protocol):
    """One client's end of one stream. Writing never waits; a slow client is waited for explicitly, with a bound."""

    __slots__ = ()

    def send(self, data: Output, *, last: bool) -> None:
        """Write what a writer gave, be it nothing; nothing follows the last.

        What is large is written by `drain`: wait for it while the client is `full`, after the last too.
        """

    @property
    def full(self) -> bool:
        """Whether the client does not keep up."""

    def hold(self, size: int) -> None:
        """`size` bytes are buffered for this client; a shared sink may close this stream to free memory."""

    async def drain(self) -> None:
        """Return once the client has caught up.

        Raises:
            SlowConsumer: it did not, for too long; its connection is cut.
        """
