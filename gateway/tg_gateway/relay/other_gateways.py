"""Gateway -> other gateways on its bus: what they do while somebody watches here, and streams of theirs to stop.

A gateway sends nothing until it is asked, and is asked once a second for as long as somebody looks.
"""

import asyncio
import math
import time
import zlib
from collections.abc import Callable
from typing import Final

import msgspec

from tg_base.client import Requestor
from tg_base.runtime import is_set_within
from tg_gateway.relay.live_part import LivePart, Part
from tg_schema import decode, encode
from tg_schema.errors import BadRequest

LOOK_SECONDS: Final = 0.5
"""Seconds that a first look waits for the other gateways, and for which a gateway answers with the same figures."""
PART_SECONDS: Final = 2.5
"""Seconds of silence after which a gateway is left out; long enough that one answer may be lost."""
STOP_SECONDS: Final = 1.0
"""Seconds that a stop waits for the gateway of the stream."""
MAX_PARTS: Final = 256
"""Parts that a gateway keeps: of others for keys, of others for operators, and of its own for different keys, each."""
MAX_PART_BYTES: Final = 1024 * 1024
"""Largest part in bytes: 200 streams with the longest names take half of it."""


class _Message(msgspec.Struct, frozen=True, tag="live"):
    """A question to gateways (what do you do, or stop this stream if it is yours), or the answer to one.

    Attributes:
        sees: as for `Call.sees`.
        stream: the stream to stop, or that was stopped; "" = the question is what the gateways do.
        answer: whether this is an answer.
        part: a `Part`, compressed, because a broker drops other messages to an inbox next to large ones.
        keyed: whether the sender checks keys. Only then does `sees` = None mean an operator.
    """

    sees: str | None
    stream: str = ""
    answer: bool = False
    part: bytes = b""
    keyed: bool = False


class OtherGateways:
    """The other gateways on this bus.

    Args:
        requestor: hears them.
        own: describes what this gateway does.
        keyed: whether this gateway checks keys now. If so, it tells nothing to gateways that check no keys.
    """

    def __init__(self, requestor: Requestor, own: LivePart, keyed: Callable[[], bool]) -> None:
        self._requestor, self._own, self._keyed = requestor, own, keyed
        # Since when somebody has watched each view, and when the other gateways are due to be asked for it again.
        self._looks: dict[str | None, tuple[float, float]] = {}
        # When each part arrived, and how much later its gateway began than this one.
        self._parts: dict[tuple[str | None, str], tuple[float, float, Part]] = {}
        self._shown: dict[str | None, tuple[float, _Message]] = {}
        self._stopping: dict[tuple[str, str | None], asyncio.Event] = {}
        requestor.hear_peers(self._take)

    async def look(self, sees: str | None) -> list[Part]:
        """The latest answers of the other gateways, on this gateway's clock; asks them again.

        It waits for their answers only if nobody has watched in the last seconds.
        """
        now = time.monotonic()
        self._looks = {key: look for key, look in self._looks.items() if now < look[1] + PART_SECONDS}
        began, due = self._looks.get(sees, (now, now))
        if now >= due:
            self._looks[sees] = began, now + LOOK_SECONDS
            self._requestor.tell_peers(_Message(sees, keyed=self._keyed()))
        await asyncio.sleep(max(began + LOOK_SECONDS - now, 0.0))
        oldest = time.monotonic() - PART_SECONDS
        self._parts = {key: known for key, known in self._parts.items() if known[0] > oldest}
        return [part for (seen, _), (_, _, part) in self._parts.items() if seen == sees]

    async def stop(self, stream: str, sees: str | None) -> bool:
        """Stop a stream of another gateway; False = no gateway has said in time that the stream was its own."""
        stopped = self._stopping.setdefault((stream, sees), asyncio.Event())
        try:
            self._requestor.tell_peers(_Message(sees, stream, keyed=self._keyed()))
            return await is_set_within(stopped, STOP_SECONDS)
        finally:
            self._stopping.pop((stream, sees), None)

    def _take(self, peer: str, body: bytes) -> None:
        match decode(_Message, body):
            case _Message(None, answer=False, keyed=False) if self._keyed():
                pass  # Anybody may have asked there.
            case _Message(sees, "", False):
                self._answer(peer, sees)
            case _Message(sees, "", True, packed):
                self._note((sees, peer), packed)
            case _Message(sees, stream, True) if (stream, sees) in self._stopping:
                self._stopping[stream, sees].set()
            case _Message(sees, stream, False) if self._own.stop(stream, sees):
                self._requestor.tell_peers(_Message(sees, stream, answer=True), peer)

    def _answer(self, peer: str, sees: str | None) -> None:
        now = time.monotonic()
        self._shown = {key: shown for key, shown in self._shown.items() if now < shown[0]}
        if sees not in self._shown and (sees is None or len(self._shown) < MAX_PARTS):
            part = zlib.compress(encode(self._own.show(sees)), 1)
            self._shown[sees] = now + LOOK_SECONDS, _Message(sees, answer=True, part=part)
        if sees in self._shown:
            self._requestor.tell_peers(self._shown[sees][1], peer)

    def _note(self, place: tuple[str | None, str], packed: bytes) -> None:
        # Keys take none of the operators' places.
        alike = sum((sees is None) == (place[0] is None) for sees, _ in self._parts)
        if place[0] not in self._looks or (place not in self._parts and alike >= MAX_PARTS):
            return
        try:
            part = decode(Part, zlib.decompressobj().decompress(packed, MAX_PART_BYTES))
        except zlib.error:
            raise BadRequest("not a part of a live view: it is not compressed as one") from None
        # The fastest message so far decides: if each message did, each would change all rows.
        known = self._parts[place][1] if place in self._parts else math.inf
        later = min(time.monotonic() - self._own.began - part.at, known)
        for name, row in part.streams.items():
            part.streams[name] = msgspec.structs.replace(row, since=round(row.since + later, 1))
        self._parts[place] = time.monotonic(), later, part
