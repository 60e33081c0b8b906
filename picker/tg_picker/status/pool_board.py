"""Door or pool provider -> page and metrics: one picker's state and its last decisions."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Protocol

from tg_picker.core import Attained, InstanceRequest, Pick, Rejection, RouteSlo, Scheduler
from tg_picker.pools import PoolView
from tg_picker.status.instances_status import QueueStatus
from tg_picker.status.picker_totals import PickerTotals
from tg_picker.status.request_record import RequestFacts, RequestRecord

MAX_DECISIONS: Final = 200
"""Decisions that are kept with their reasons."""
_NO_REQUEST: Final = InstanceRequest()


class ShownPools(Protocol):
    """The pools of a picker; `tg_picker.pools.followed_pools` implements it."""

    @property
    def view(self) -> PoolView:
        """The pools now."""

    @property
    def failing(self) -> Mapping[str, str]:
        """The servers whose load cannot be read, by address, and why."""

    @property
    def unreachable(self) -> Collection[str]:
        """The addresses that cannot be reached."""


class PoolBoard:
    """Is notified of each decision and of its end. The page and the metrics read it. It belongs to one event loop.

    Args:
        name: the picker's name, for the page.
        policy: the name of the policy that picks.
        scheduler: the scheduler whose servers are shown.
        pools: the current pools.
        clock: the scheduler's clock, in seconds.
        totals: the counts of the process.
        queues: returns the requests that wait, by pool and priority.
        attainment: returns by route how it met its objectives in the last minute.

    Attributes:
        decisions: the last MAX_DECISIONS, the oldest first.
    """

    def __init__(
        self,
        name: str,
        policy: str,
        scheduler: Scheduler,
        pools: ShownPools,
        clock: Callable[[], float],
        *,
        totals: PickerTotals,
        queues: Callable[[], Iterable[QueueStatus]] = tuple,
        attainment: Callable[[], Mapping[str, RouteSlo]] = dict,
    ) -> None:
        self.name = name
        self.policy = policy
        self.scheduler = scheduler
        self.pools = pools
        self.clock = clock
        self.totals = totals
        self.queues = queues
        self.attainment = attainment
        self.decisions: deque[RequestRecord] = deque(maxlen=MAX_DECISIONS)

    def record(
        self,
        facts: RequestFacts,
        request: InstanceRequest,
        made: Pick | Rejection,
        seconds: float,
        *,
        again: bool = False,
        arrived_at: float | None = None,
    ) -> RequestRecord:
        """Record a decision. If it is a pick, report the end to the returned record.

        Args:
            facts: what the door knows about the request.
            request: the request that the scheduler got.
            made: the decision.
            seconds: how long the decision took.
            again: whether it is another attempt at a request that was recorded before.
            arrived_at: when the request arrived, on the board's clock, if it waited for a server; None = now.
        """
        now = self.clock()
        # For another attempt, the time since the request arrived is not a wait.
        record = RequestRecord.make(facts, request, made, now if again or arrived_at is None else arrived_at)
        record.pick_seconds = seconds
        record.waited = None if again else now - record.picked_at
        self.decisions.append(record)
        self.totals.begin(record)
        return record

    def refuse(self, facts: RequestFacts, made: Rejection) -> None:
        """Record the refusal of a request that had no servers to pick from, because its model is unknown."""
        record = RequestRecord.make(facts, _NO_REQUEST, made, self.clock())
        self.decisions.append(record)
        self.totals.refuse(record)

    def names(self, model: str) -> bool:
        """Whether an operator named this model or adapter."""
        view = self.pools.view
        catalogue = view.catalogue
        if model in catalogue.models:
            return True
        targets = (name for to in (*catalogue.rewrites.values(), *catalogue.defaults.values()) for name, _ in to)
        return model in targets or any(model in served for served in view.served.values())


def read_recent(boards: Iterable[PoolBoard]) -> dict[tuple[str, str], Attained]:
    """By route and kind of objective: how many requests met it recently, over all boards.

    An objective without a counted request is left out.
    """
    found: dict[tuple[str, str], Attained] = {}
    for board in boards:
        for route, watched in board.attainment().items():
            kinds = {"TimeToFirstToken": watched.first_token, "OutputTokenLatency": watched.output_token}
            for kind, attained in kinds.items():
                if attained.total:
                    before = found.get((route, kind), Attained(0, 0))
                    found[route, kind] = Attained(before.kept + attained.kept, before.total + attained.total)
    return found
