"""Configuration -> request queue: how many requests may wait, for how long, and when a server is full."""

from typing import Annotated

from msgspec import Meta, Struct

from tg_picker.core.policies import MAX_QUEUE
from tg_schema.errors import BadRequest

_Count = Annotated[int, Meta(ge=0)]


class BandLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """The limits for requests of one priority.

    Attributes:
        priority: the priority of these requests.
        max_waiting: most requests that may wait; 0 = none. None = as many as in the whole queue.
        max_bytes: most bytes of their bodies; None = as many as in the whole queue.
    """

    priority: int
    max_waiting: _Count | None = None
    max_bytes: _Count | None = None


class QueueLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """The limits for requests that wait for a server of one pool.

    Attributes:
        max_waiting: most waiting requests of all priorities; 0 = none may wait.
        max_bytes: most bytes of their bodies.
        max_seconds: how long a request may wait.
        max_requests: most requests that a server runs and queues; None = no limit but its queue's length.
        max_queued: length of a server's own queue from which on it gets no more requests without an objective.
        sheddable: whether requests with a priority below 0 may wait too; False = they are refused at once.
        bands: limits for single priorities.
    """

    max_waiting: _Count = 1_000
    max_bytes: _Count = 256 * 1024 * 1024
    max_seconds: Annotated[float, Meta(gt=0, le=86_400)] = 30.0
    max_requests: Annotated[int, Meta(ge=1)] | None = None
    max_queued: Annotated[int, Meta(ge=1)] = MAX_QUEUE
    sheddable: bool = False
    bands: tuple[BandLimits, ...] = ()

    def check(self, option: str) -> None:
        """Check what the types cannot express.

        Args:
            option: the configuration's name of these limits.

        Raises:
            BadRequest: a priority has two limits, or a limit above the pool's; `option` of the error is its position.
        """
        seen: set[int] = set()
        for at, band in enumerate(self.bands):
            if band.priority in seen:
                sentence = f"{option}: priority {band.priority} is repeated; keep one"
                raise BadRequest(sentence).at(option, "bands", str(at), "priority")
            seen.add(band.priority)
            for field in ("max_waiting", "max_bytes"):
                most, limit = getattr(self, field), getattr(band, field)
                if limit is not None and limit > most:
                    sentence = f"{field} of priority {band.priority} is {limit}, above the queue's {most}; lower it"
                    raise BadRequest(f"{option}: {sentence}").at(option, "bands", str(at), field)

    def band(self, priority: int) -> tuple[int, int]:
        """The most requests and the most bytes that may wait at a priority."""
        if priority < 0 and not self.sheddable:
            return 0, 0
        found = next((band for band in self.bands if band.priority == priority), None)
        if found is None:
            return self.max_waiting, self.max_bytes
        waiting = self.max_waiting if found.max_waiting is None else found.max_waiting
        return waiting, self.max_bytes if found.max_bytes is None else found.max_bytes
