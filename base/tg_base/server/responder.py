"""Processor -> requestor: the interface that answers go through, and the one for plain peers (the response topic)."""

from collections.abc import Callable
from typing import Final

import structlog

from tg_base.bus import Bus
from tg_base.protocol import FrameKind, LinkStream
from tg_schema import TgError, encode
from tg_schema.response import Response

log = structlog.get_logger()


class PlainResponder:
    """For a plain peer, which knows only the property `id`: one message for each record, sent one after the other.

    A plain peer gets no other message: its request never lacks its body, and needs no confirmation. The methods are
    those of `LinkStream`.
    """

    put: Final = None
    """It takes no response without waiting: each goes through `send`."""

    def __init__(self, bus: Bus, topic: str, stream: str) -> None:
        self._bus = bus
        self._topic = topic
        self._stream = stream
        self._seq = 0

    def open(self) -> None:
        """Register the stream: from now on it ends if its requestor dies."""

    def accept(self, opening: Callable[[], bool]) -> None:
        """Tell the requestor that work has begun or is about to.

        Args:
            opening: returns whether the request waits for its model to be opened; called until it returns False.
        """

    def signal(self, kind: FrameKind, question: int = 0) -> None:
        """Send the requestor a notice or a question besides the responses."""

    async def send(self, record: Response) -> None:
        """Send one response; waits while the link's buffer for this stream is full."""
        properties = {"id": self._stream, "seq": str(self._seq)}
        self._seq += 1
        await self._bus.publish(self._topic, encode(record), properties)

    def close(self) -> None:
        """Send nothing more."""


Responder = LinkStream | PlainResponder
"""Sends the responses to one request."""


async def send_failure(responder: Responder, record: Response) -> None:
    """Send the error that ends a stream. If the bus does not accept it, there is only a line in the log."""
    try:
        await responder.send(record)
    except TgError as error:
        log.warning("response.error_not_sent", error=error.type)
