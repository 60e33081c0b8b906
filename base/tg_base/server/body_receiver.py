"""Control messages -> request task: the bodies of large requests, put together from their parts."""

import asyncio
from collections.abc import Callable

from tg_base.bus import Delivery
from tg_base.protocol import WINDOW_BYTES, Part, StreamKey
from tg_base.runtime import is_set_within

MAX_TRANSFERS = 4
"""Bodies that are received at the same time; further ones wait in turn."""
ASK_AGAIN_SECONDS = 0.5
"""Seconds without a new part after which the rest is requested again, since its topic may drop messages."""


class BodyReceiver:
    """Receives the bodies of one processor's requests."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(MAX_TRANSFERS)
        self._bodies: dict[StreamKey, _Body] = {}

    def take(self, delivery: Delivery) -> bool:
        """Whether a message is a part of a body. A part without a waiting request is dropped.

        Raises:
            BadRequest: the message is a part with malformed properties.
        """
        part = Part.of(delivery.properties)
        if part is None:
            return False
        if part.key in self._bodies:
            self._bodies[part.key].put(part.offset, delivery.body)
        return True

    async def fetch(self, key: StreamKey, size: int, ask: Callable[[int], None]) -> bytes:
        """The body of a request.

        Args:
            key: the attempt.
            size: bytes of the body.
            ask: asks the requestor to send `WINDOW_BYTES` from an offset on.
        """
        async with self._turns:
            body = self._bodies[key] = _Body()
            try:
                while body.size < size:
                    ask(body.size)
                    await body.receive(min(body.size + WINDOW_BYTES, size))
            finally:
                del self._bodies[key]
        return b"".join(body.parts)


class _Body:
    """The received parts of a body: those without a gap, and those beyond a gap, since the topic may reorder."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self._early: dict[int, bytes] = {}
        self._grown = asyncio.Event()

    def put(self, offset: int, part: bytes) -> None:
        if self.size <= offset < self.size + WINDOW_BYTES and part:
            self._early[offset] = part
        while (following := self._early.pop(self.size, None)) is not None:
            self.parts.append(following)
            self.size += len(following)
            self._grown.set()

    async def receive(self, size: int) -> None:
        """Return when the body has this size, or has not grown for `ASK_AGAIN_SECONDS`."""
        while self.size < size:
            self._grown.clear()
            if not await is_set_within(self._grown, ASK_AGAIN_SECONDS):
                return
