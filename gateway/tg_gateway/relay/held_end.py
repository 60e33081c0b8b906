"""Pump -> held back -> client: the end of a stream waits until its answer is kept, so that its reader finds it."""

from typing_extensions import override

from tg_gateway.dialects.output import Output
from tg_gateway.relay.sink import Sink


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
