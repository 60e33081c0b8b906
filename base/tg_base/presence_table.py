"""Who lives: every processor that has announced itself, and when it was last heard."""

import math
from collections.abc import Callable, Iterator

from tg_base.frames import Presence
from tg_base.liveness import Liveness


class PresenceTable:
    """The processors that a requestor knows.

    Args:
        liveness: when silence means death.
        time: a monotonic clock, in seconds.

    Attributes:
        version: another number after every change.
    """

    def __init__(self, liveness: Liveness, time: Callable[[], float]) -> None:
        self._liveness = liveness
        self._time = time
        self._since = time()
        self.version = 0
        self._heard: dict[str, tuple[float, Presence]] = {}
        self._free_since: dict[str, float] = {}

    def heard(self, presence: Presence) -> None:
        """A processor has announced itself."""
        self.version += 1
        self._heard[presence.processor] = (self._time(), presence)
        if presence.in_flight < presence.capacity:
            self._free_since.setdefault(presence.processor, self._time())
        else:
            self._free_since.pop(presence.processor, None)

    def alive(self, processor: str) -> bool:
        """Whether this processor has been heard lately."""
        return processor in self._heard

    def serving(self, queue: str) -> list[Presence]:
        """The live processors that take requests from a queue."""
        return [presence for presence in self if queue in presence.queues and not presence.leaving]

    def deserted(self, queue: str) -> bool:
        """Whether nobody serves this queue, and we have listened long enough to know."""
        warm = self._time() - self._since > self._liveness.dead_after
        return warm and not self.serving(queue)

    def passed_over(self, queue: str, asked: float) -> bool:
        """Whether a request, asked at that time, has waited for long although a processor of its queue was free.

        Then the bus has given it to one that does not answer, which the bus itself may take a minute to notice.
        """
        limit = self._time() - self._liveness.dead_after
        if asked > limit:
            return False
        return any(self._free_since.get(presence.processor, math.inf) <= limit for presence in self.serving(queue))

    def bury(self) -> dict[str, Presence]:
        """Forget, and return, the processors that have fallen silent."""
        limit = self._time() - self._liveness.dead_after
        dead = {processor: presence for processor, (at, presence) in self._heard.items() if at < limit}
        self.version += bool(dead)
        for processor in dead:
            del self._heard[processor]
            self._free_since.pop(processor, None)
        return dead

    def __iter__(self) -> Iterator[Presence]:
        return (presence for _, presence in self._heard.values())
