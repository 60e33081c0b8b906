"""Requestor -> process: requests bypass the queue and go to the process that has their prefix in memory.

Requests with one cache key have a common prefix. The process that began the last one gets the next one, as long as it
has a free slot. That is a preference: in every other case the request goes to the queue. No request begins twice,
because the process asks before it begins, and only the current attempt is confirmed.
"""

from collections import OrderedDict
from collections.abc import Container

from tg_base.client.admission import AdmissionControl
from tg_base.client.asked_stream import AskedStream
from tg_base.client.membership import Membership
from tg_base.telemetry import WARM

DIRECT_SECONDS = 0.5
"""Seconds after which a request goes to the queue if the process that it was sent to says nothing."""
MAX_DIRECT_BYTES = 128 * 1024
"""Bytes of a request that goes to a process in one message, which a broker may drop; a larger one is fetched."""
MAX_KEYS = 10_000
"""Cache keys that are remembered; beyond it the one used least recently is forgotten."""


class WarmProcesses:
    """The processes that one requestor believes to have a cache key's prompt cached.

    Args:
        presence: the announcements of the processes.
        admission: knows how many requests wait.
    """

    def __init__(self, presence: Membership, admission: AdmissionControl) -> None:
        self._presence = presence
        self._admission = admission
        self._begun: OrderedDict[int, str] = OrderedDict()

    def choose(self, stream: AskedStream) -> str | None:
        """The process to send a request to, which is counted there from now on; None = none can begin it now."""
        attempt, process = stream.attempt, self._begun.get(_number(stream))
        queue = attempt.route.request
        # If requests wait in the queue already, this one must not overtake them.
        if process is None or self._admission.room(queue) < 0:
            return None
        service = self._presence.find(queue, process)
        if service is None or service.room <= 0 or len(stream.body) > service.presence.request_bytes:
            return None
        attempt.direct = process
        attempt.place_at(service)
        WARM.labels(attempt.route.spec.name, "sent").inc()
        return process

    def note_taken(self, stream: AskedStream, process: str) -> None:
        """A process has this request, which has a cache key."""
        number = _number(stream)
        self._begun[number] = process
        self._begun.move_to_end(number)
        if len(self._begun) > MAX_KEYS:
            self._begun.popitem(last=False)
        stream.attempt.place_at(self._presence.find(stream.attempt.route.request, process))

    def note_returned(self, stream: AskedStream) -> None:
        """Note that the process that a request was sent to has no free slot."""
        WARM.labels(stream.attempt.route.spec.name, "returned").inc()

    def is_over(self, stream: AskedStream, dead: Container[str], now: float) -> bool:
        """Whether the process that a request was sent to has died, or has said nothing for too long."""
        attempt = stream.attempt
        over = attempt.direct in dead or now - attempt.asked_at > DIRECT_SECONDS
        if over:
            WARM.labels(attempt.route.spec.name, "unanswered").inc()
        return over


def _number(stream: AskedStream) -> int:
    """The hash of a key, which may have any length. A collision costs one request its warm prefix."""
    return hash((stream.attempt.route.request, stream.attempt.span.caller, stream.cache_key))
