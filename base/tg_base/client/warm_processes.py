"""Requestor -> process: requests bypass the queue and go to the process that has their prefix in memory.

Requests with one cache key have a common prefix. The process that began the last one gets the next one, as long as it
has a free slot. That is a preference: in every other case the request goes to the queue. No request begins twice,
because the process asks before it begins, and only the current attempt is confirmed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Container

import msgspec

from tg_base.bus import Bus
from tg_base.client.admission import AdmissionControl
from tg_base.client.membership import Membership
from tg_base.client.response_stream import AskedStream
from tg_base.telemetry import WARM
from tg_schema import TgError
from tg_schema.topics import Topics

DIRECT_SECONDS = 0.5
"""Seconds after which a request goes to the queue if the process that it was sent to says nothing."""
MAX_DIRECT_BYTES = 128 * 1024
"""Bytes of a request that goes to a process in one message, which a broker may drop; a larger one is fetched."""
MAX_KEYS = 10_000
"""Cache keys that are remembered; beyond it the one used least recently is forgotten."""


class WarmProcesses:
    """The processes that one requestor believes to have a cache key's prompt cached.

    Args:
        bus: carries the requests.
        topics: the names of our own topics.
        inbox: where the answers come.
        presence: the announcements of the processes.
        admission: knows how many requests wait.
    """

    def __init__(self, bus: Bus, topics: Topics, inbox: str, presence: Membership, admission: AdmissionControl) -> None:
        self._bus = bus
        self._topics = topics
        self._inbox = inbox
        self._presence = presence
        self._admission = admission
        self._begun: OrderedDict[int, str] = OrderedDict()

    async def ask(self, stream: AskedStream) -> bool:
        """Send a request to its warm process; False = there is none that can begin it now, and the queue gets it."""
        process = self._choose(stream)
        if process is None:
            return False
        stream.direct = process
        WARM.labels(stream.route.spec.name, "sent").inc()
        in_parts = len(stream.body) > MAX_DIRECT_BYTES
        call = msgspec.structs.replace(stream.headers(self._inbox, in_parts=in_parts), queue=stream.route.request)
        try:
            async with asyncio.timeout(DIRECT_SECONDS):
                topic = self._topics.control(process)
                await self._bus.publish(topic, b"" if in_parts else stream.body, call.properties)
        except (TgError, TimeoutError):
            # The bus may have delivered it anyway: by now it may be taken, or be in the queue.
            if stream.direct is not None and stream.processor is None:
                stream.begin_attempt()
                return False
        return True

    def _choose(self, stream: AskedStream) -> str | None:
        """The process to send a request to, which is counted there from now on."""
        process = self._begun.get(_number(stream))
        queue = stream.route.request
        # If requests wait in the queue already, this one must not overtake them.
        if process is None or self._admission.room(queue) < 0:
            return None
        service = self._presence.find(queue, process)
        if service is None or service.room <= 0 or len(stream.body) > service.presence.request_bytes:
            return None
        stream.place_at(service)
        return process

    def note_taken(self, stream: AskedStream, process: str) -> None:
        """A process has this request, which has a cache key."""
        number = _number(stream)
        self._begun[number] = process
        self._begun.move_to_end(number)
        if len(self._begun) > MAX_KEYS:
            self._begun.popitem(last=False)
        stream.place_at(self._presence.find(stream.route.request, process))

    def note_returned(self, stream: AskedStream) -> None:
        """Note that the process that a request was sent to has no free slot."""
        WARM.labels(stream.route.spec.name, "returned").inc()

    def is_over(self, stream: AskedStream, dead: Container[str], now: float) -> bool:
        """Whether the process that a request was sent to has died, or has said nothing for too long."""
        over = stream.direct in dead or now - stream.asked_at > DIRECT_SECONDS
        if over:
            WARM.labels(stream.route.spec.name, "unanswered").inc()
        return over


def _number(stream: AskedStream) -> int:
    """The hash of a key, which may have any length. A collision costs one request its warm prefix."""
    return hash((stream.route.request, stream.span.caller, stream.cache_key))
