"""A pool, its scheduler and its queues on a clock of the test's own, for tests of who waits and who goes."""

from dataclasses import dataclass, field
from random import Random

import msgspec

from tests.picker.core.cases import endpoint
from tg_picker.core import (
    Endpoint,
    FlowControl,
    InstanceRequest,
    LoadReport,
    Objective,
    Pick,
    Placement,
    QueueLimits,
    Rejection,
    Scheduler,
    Waiting,
)

POOL = tuple(map(endpoint, "ab"))
FIRST = Objective(first_token=1.0, quantile=0.9)


@dataclass
class World:
    """A pool whose servers take so many requests each."""

    limits: QueueLimits = field(default_factory=lambda: QueueLimits(max_requests=1, sheddable=True))
    pool: tuple[Endpoint, ...] = POOL
    now: float = 0.0
    order: list[str] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler("least-request", random=Random(0))
        self.control = FlowControl(self.scheduler, self.limits)

    def ask(self, name: str, priority: int = 0, **fields: object) -> Waiting:
        size = fields.pop("size", 0)
        assert isinstance(size, int)
        request = msgspec.convert({"priority": priority, "prompt_tokens": 10, "flow": name, **fields}, InstanceRequest)
        waiting = self.control.submit("p", request, lambda: self.pool, self.now, size=size)
        if waiting.made is None:
            waiting.on_made = lambda made: self.note(name, made)
        else:
            self.note(name, waiting.made)
        return waiting

    def note(self, name: str, made: Pick | Rejection) -> None:
        if isinstance(made, Pick):
            self.order.append(name)
            self.placements.append(made.placement)
        else:
            self.refused.append(f"{name} {made.status} {made.reason}")

    def finish(self) -> None:
        """The oldest request ends, and room is given on."""
        self.placements.pop(0).finish(None, self.now)
        self.control.serve(self.now)

    def tell(self, *queued: int) -> None:
        for each, number in zip(self.pool, queued, strict=True):
            self.scheduler.observe(each, LoadReport(self.now, queued=number))
