"""Publisher -> broker's client: bounds the messages and bytes in flight on one topic."""

from tg_base.bus.core.wait_queue import WaitQueue
from tg_schema import TgError


class SendWindow:
    """A send window; a publisher that finds it full waits in turn. Belongs to one event loop.

    Args:
        messages: messages that may be in flight.
        size: bytes that may be in flight; a single message may exceed it.

    Attributes:
        in_flight: messages in flight now.
    """

    def __init__(self, messages: int, size: int) -> None:
        self._messages = messages
        self._bytes = size
        self._waiting = WaitQueue()
        self._error: TgError | None = None
        self.in_flight = 0

    @property
    def full(self) -> bool:
        """Whether the next message must wait; an empty window takes a message of any size."""
        # Both counts may fall below zero, since the message that fills the window is admitted whole. If it had to wait
        # for enough room, small messages could overtake a large one for ever.
        return self.in_flight > 0 and (self._messages <= 0 or self._bytes <= 0)

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight and no publisher waits."""
        return self.in_flight == 0 and not self._waiting

    def enter(self, size: int) -> None:
        """Count a message in. Call it only if `full` is false."""
        self.in_flight += 1
        self._messages -= 1
        self._bytes -= size

    def leave(self, size: int) -> None:
        """Count a message out, and wake the next publisher."""
        self.in_flight -= 1
        self._messages += 1
        self._bytes += size
        if not self.full:
            self._waiting.wake()

    async def enter_in_turn(self, size: int) -> None:
        """Wait until there is room, then count a message in.

        Raises:
            TgError: the error given to `close`.
        """
        while self.full and self._error is None:
            await self._waiting.wait()
        if self._error is not None:
            raise self._error
        self.enter(size)
        # One large message that has left may free space for many small ones: each wakes the next while there is space.
        if not self.full:
            self._waiting.wake()

    def close(self, error: TgError) -> None:
        """Fail all publishers that wait, and all that come later."""
        self._error = error
        self._waiting.wake_all()
