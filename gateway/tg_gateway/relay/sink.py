"""A running request -> its client: where events go, whatever the door."""

from typing import Protocol

from typing_extensions import override

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
            SlowConsumer: it did not, for too long; its connection is cut.
        """
        return


class HeldEnd(Sink):
    """Passes everything to a sink but the last bytes.

    Args:
        sink: where it goes.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._end: Output = b""

    @override
    def send(self, data: Output, *, last: bool) -> None:
        # The bytes are kept and not the record: the writer has counted them, and would not write them twice.
        if last:
            self._end = data
        else:
            self._sink.send(data, last=False)

    def release(self) -> None:
        """Send what was held back."""
        self._sink.send(self._end, last=True)

    @property
    @override
    def full(self) -> bool:
        return self._sink.full

    @override
    def hold(self, size: int) -> None:
        self._sink.hold(size)

    @override
    async def drain(self) -> None:
        await self._sink.drain()
