"""Publisher -> broker's client: how much may be on its way at once, by messages and by bytes."""

from tg_base.bus.core.wait_queue import WaitQueue
from tg_schema import TgError


class SendWindow:
    """Bounds what is in flight on one topic; who finds it full waits in line. Belongs to one event loop."""

    def __init__(self, messages: int, size: int) -> None:
        self._messages = messages
        self._bytes = size
        self._waiting = WaitQueue()
        self._error: TgError | None = None
        self.in_flight = 0

    @property
    def full(self) -> bool:
        """Whether the next one must wait; an empty window takes a message of any size."""
        return self.in_flight > 0 and (self._messages <= 0 or self._bytes <= 0)

    @property
    def idle(self) -> bool:
        """Nothing is in flight, and nobody waits."""
        return self.in_flight == 0 and not self._waiting

    def enter(self, size: int) -> None:
        """Count a message in; only where `full` is false."""
        self.in_flight += 1
        self._messages -= 1
        self._bytes -= size

    def leave(self, size: int) -> None:
        """Count a message out, and let the next one try."""
        self.in_flight -= 1
        self._messages += 1
        self._bytes += size
        if not self.full:
            self._waiting.wake()

    async def enter_in_turn(self, size: int) -> None:
        """Wait until there is room, then count a message in.

        Raises:
            TgError: what `close` was given.
        """
        while self.full and self._error is None:
            await self._waiting.wait()
        if self._error is not None:
            raise self._error
        self.enter(size)
        if not self.full:
            self._waiting.wake()

    def close(self, error: TgError) -> None:
        """Fail everybody who waits, and whoever comes later."""
        self._error = error
        self._waiting.wake_all()
