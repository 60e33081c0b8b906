"""Inbox topic -> frames: all links of one requestor put in order, acknowledged, and their gaps asked for again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tg_base.bus.api import Delivery
from tg_base.controls import Controls
from tg_base.frames import Beat, Frame, LinkState, Resend
from tg_base.link_reader import LinkReader
from tg_base.metrics import RESENDS
from tg_schema.codec import decode
from tg_schema.errors import BadRequest

ACKNOWLEDGE = 64
"""Messages of a link between acknowledgements, beside those of every beat."""
ASK_AGAIN = 0.1
"""Seconds between two requests to resend the same gap."""


@dataclass(slots=True)
class _LinkEnd:
    processor: str
    reader: LinkReader = field(default_factory=LinkReader)
    heard_at: float = 0.0
    asked_at: float = float("-inf")
    gap_since: float | None = None


class Inbox:
    """The receiving ends of all links.

    Args:
        topic: the inbox's topic, by which processors know this requestor.
        controls: how processors are spoken to.
        time: a monotonic clock, in seconds.
    """

    def __init__(self, topic: str, controls: Controls, time: Callable[[], float]) -> None:
        self.topic = topic
        self._controls = controls
        self._time = time
        self._ends: dict[str, _LinkEnd] = {}

    @property
    def processors(self) -> set[str]:
        """The processors that have a link to this inbox."""
        return {end.processor for end in self._ends.values()}

    def take(self, delivery: Delivery) -> Iterator[tuple[str, Frame]]:
        """The frames that are due with this message, in order, each with its processor.

        Raises:
            BadRequest: not a link message.
        """
        properties = delivery.properties
        try:
            processor, link, seq = properties["processor"], properties["link"], int(properties["seq"])
        except (KeyError, ValueError):
            raise BadRequest("not a link message: it needs the properties `processor`, `link` and `seq`") from None
        end = self._end(link, processor)
        for body in end.reader.take(seq, delivery.body):
            for frame in decode(list[Frame], body):
                yield processor, frame
            if end.reader.expected % ACKNOWLEDGE == 0:
                self.beat(processor)
        self._mind_gap(link, end)

    def announced(self, processor: str, state: LinkState | None) -> None:
        """A processor says how far it has sent here; None = it has no link to this inbox (any more)."""
        if state is not None and state.sent >= 0:
            end = self._end(state.link, processor)
            end.reader.announced(state.sent)
            self._mind_gap(state.link, end)

    def beat(self, processor: str) -> None:
        """Tell a processor that we live and what we have."""
        ends = self._ends.items()
        acknowledged = {link: end.reader.expected - 1 for link, end in ends if end.processor == processor}
        self._controls.say(processor, Beat(self.topic, acknowledged, self._controls.recently_cancelled(processor)))

    def sweep(self, seconds: float) -> set[str]:
        """Forget links that have been silent for so long; return the processors with a gap open for so long."""
        limit = self._time() - seconds
        for link in [link for link, end in self._ends.items() if end.heard_at < limit]:
            del self._ends[link]
        return {end.processor for end in self._ends.values() if end.gap_since is not None and end.gap_since < limit}

    def forget(self, processors: set[str]) -> None:
        """These are dead."""
        self._ends = {link: end for link, end in self._ends.items() if end.processor not in processors}

    def _end(self, link: str, processor: str) -> _LinkEnd:
        end = self._ends.get(link)
        if end is None:
            end = self._ends[link] = _LinkEnd(processor)
        end.heard_at = self._time()
        return end

    def _mind_gap(self, link: str, end: _LinkEnd) -> None:
        if not end.reader.gap:
            end.gap_since = None
            return
        now = self._time()
        if end.gap_since is None:
            end.gap_since = now
        if now - end.asked_at >= ASK_AGAIN:
            end.asked_at = now
            RESENDS.inc()
            self._controls.say(end.processor, Resend(self.topic, link, end.reader.expected))
