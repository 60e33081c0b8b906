"""Processor -> whoever asked: over a link to its inbox, or plainly on the flow's response topic."""

import asyncio
from typing import Protocol

from typing_extensions import override

from tg_base.bus import Bus
from tg_base.protocol import HeartbeatTiming, LinkSender, StreamKey
from tg_schema import encode
from tg_schema.response import Response

ACCEPTED_AFTER_SECONDS = 0.1
"""Seconds without a record after which the requestor is told that work has begun."""
ACCEPTED_EVERY_HEARTBEATS = 5
"""Beats without a record after which it is told again: nothing else can be heard of a whole answer in the making."""


class Responder(Protocol):
    """Where the responses to one request go."""

    def open(self) -> None:
        """The requestor is somebody whose silence would matter from now on."""

    def accept(self) -> None:
        """Say that work has begun, or is about to."""

    def ask(self, question: int) -> None:
        """Ask whether the answer is still wanted; the word comes by control message, with the question's number."""

    def hand_back(self) -> None:
        """Say that the request was not begun, and that another processor should."""

    async def send(self, record: Response) -> None:
        """Pass one response on; waits where the way is full."""

    def close(self) -> None:
        """Nothing more will be sent."""


class LinkResponder(Responder):
    """For a requestor of ours. Work that has begun shows by its first record, or is told where that takes a while."""

    def __init__(self, link: LinkSender, key: StreamKey, timing: HeartbeatTiming) -> None:
        self._link = link
        self._key = key
        self._tell_again = ACCEPTED_EVERY_HEARTBEATS * timing.interval
        self._telling: asyncio.TimerHandle | None = None

    @override
    def open(self) -> None:
        self._link.streams.add(self._key)

    @override
    def accept(self) -> None:
        self._telling = asyncio.get_running_loop().call_later(ACCEPTED_AFTER_SECONDS, self._tell)

    @override
    def ask(self, question: int) -> None:
        self._link.ask(self._key, question)

    @override
    def hand_back(self) -> None:
        self._link.hand_back(self._key)

    @override
    async def send(self, record: Response) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        await self._link.send(self._key, record)

    @override
    def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self._link.streams.discard(self._key)

    def _tell(self) -> None:
        self._link.accept(self._key)
        self._telling = asyncio.get_running_loop().call_later(self._tell_again, self._tell)


class PlainResponder(Responder):
    """For a peer that knows the property `id` and nothing else: a message a record, each sent before the next."""

    def __init__(self, bus: Bus, topic: str, stream: str) -> None:
        self._bus = bus
        self._topic = topic
        self._stream = stream
        self._seq = 0

    @override
    def open(self) -> None:
        pass

    @override
    def accept(self) -> None:
        pass

    @override
    def ask(self, question: int) -> None:
        pass

    @override
    def hand_back(self) -> None:
        """Nothing: a plain peer is never asked, so that its request has a slot from the beginning."""

    @override
    async def send(self, record: Response) -> None:
        properties = {"id": self._stream, "seq": str(self._seq)}
        self._seq += 1
        await self._bus.publish(self._topic, encode(record), properties)

    @override
    def close(self) -> None:
        pass
