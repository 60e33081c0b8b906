"""Processor -> requestor: the interface that answers go through, and the one for plain peers (the response topic)."""

from collections.abc import Callable
from typing import Protocol

import structlog
from typing_extensions import override

from tg_base.bus import Bus
from tg_schema import TgError, encode
from tg_schema.response import Response

log = structlog.get_logger()


class Responder(Protocol):
    """Sends the responses to one request."""

    @property
    def put(self) -> Callable[[Response], bool] | None:
        """A function that takes any response but the first without waiting; it returns whether it can take another.

        None = every response must go through `send`.
        """
        return None

    def open(self) -> None:
        """Register the stream: from now on it ends if its requestor dies."""

    def accept(self, opening: Callable[[], bool]) -> None:
        """Tell the requestor that work has begun or is about to.

        Args:
            opening: returns whether the request waits for its model to be opened; called until it returns False.
        """

    def tell_begun(self) -> None:
        """Tell the requestor that work had begun, because the error that follows does not say so."""

    def ask(self, question: int) -> None:
        """Ask whether the answer is still wanted. The reply is a `Confirmed` with the question's number."""

    def fetch(self, offset: int) -> None:
        """Ask for the body of a large request, from this offset on."""

    def hand_back(self) -> None:
        """Return the request, which was not begun, for another processor to take."""

    async def send(self, record: Response) -> None:
        """Send one response; waits while the link's buffer for this stream is full."""

    def close(self) -> None:
        """Send nothing more."""


async def send_failure(responder: Responder, record: Response) -> None:
    """Send the error that ends a stream. If the bus does not take it, the log says so; nobody else can be told."""
    try:
        await responder.send(record)
    except TgError as error:
        log.warning("response.error_not_sent", error=error.type)


class PlainResponder(Responder):
    """For a plain peer, which knows only the property `id`: one message for each record, sent one after the other."""

    def __init__(self, bus: Bus, topic: str, stream: str) -> None:
        self._bus = bus
        self._topic = topic
        self._stream = stream
        self._seq = 0

    @override
    def open(self) -> None:
        pass

    @override
    def accept(self, opening: Callable[[], bool]) -> None:
        pass

    @override
    def tell_begun(self) -> None:
        pass

    @override
    def ask(self, question: int) -> None:
        pass

    @override
    def fetch(self, offset: int) -> None:
        """Do nothing: a plain peer's request is never without its body."""

    @override
    def hand_back(self) -> None:
        """Do nothing: a plain peer's request needs no confirmation, so it has a slot from the start."""

    @override
    async def send(self, record: Response) -> None:
        properties = {"id": self._stream, "seq": str(self._seq)}
        self._seq += 1
        await self._bus.publish(self._topic, encode(record), properties)

    @override
    def close(self) -> None:
        pass
