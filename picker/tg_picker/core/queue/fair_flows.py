"""Request queue -> the next request of one priority band: fair among flows, then the earliest deadline first."""

from msgspec import Struct, field

from tg_picker.core.queue.priority_queue import PriorityQueue
from tg_picker.core.queue.waiting import Waiting

MAX_LEFT_FLOWS = 1_000
"""Most flows whose account is kept while none of their requests waits."""


class _Flow(Struct, eq=False):
    """One flow's requests. `paid` is the flow's total in this band, in tokens, since the band began."""

    name: str
    paid: float
    requests: PriorityQueue[Waiting] = field(default_factory=PriorityQueue)


class FlowAccounts(Struct):
    """The accounts of flows without a waiting request, and the account with which a new flow starts.

    Requests of one band that may go to different servers wait in separate lanes, which share these accounts.
    """

    clock: float = 0.0
    left: dict[str, float] = {}


class FairFlows:
    """Waiting requests by flow. The flow that was served least goes next.

    So two flows that always have waiting requests get equally many tokens, up to the size of one request.
    """

    def __init__(self, accounts: FlowAccounts) -> None:
        self._accounts = accounts
        self._flows: dict[str, _Flow] = {}
        self._ready = PriorityQueue[_Flow]()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, waiting: Waiting) -> None:
        """Add a request that is not queued yet."""
        flow = self._flows.get(waiting.flow)
        if flow is None:
            # A flow that returns gets no credit for the time without requests, and still owes what it consumed before.
            paid = max(self._accounts.left.pop(waiting.flow, 0.0), self._accounts.clock)
            flow = self._flows[waiting.flow] = _Flow(waiting.flow, paid)
            self._ready.push(paid, flow)
        flow.requests.push(waiting.due, waiting)

    @property
    def paid(self) -> float:
        """The account of the flow that goes next. The queue must not be empty."""
        return self._ready.least_key()

    def head(self) -> Waiting:
        """The request that goes next. The queue must not be empty."""
        return self._ready.peek().requests.peek()

    def take(self) -> Waiting:
        """Remove the request that goes next, and charge its flow for it."""
        flow = self._ready.pop()
        taken = flow.requests.pop()
        self._accounts.clock = max(self._accounts.clock, flow.paid)
        flow.paid += taken.cost
        if flow.requests:
            self._ready.push(flow.paid, flow)
        else:
            self._leave(flow)
        return taken

    def postpone(self, waiting: Waiting) -> None:
        """Postpone a queued request's deadline by the time that it may wait. Its flow keeps its turn."""
        requests = self._flows[waiting.flow].requests
        requests.discard(waiting)
        waiting.due += waiting.expires_at - waiting.arrived_at
        requests.push(waiting.due, waiting)

    def remove(self, waiting: Waiting) -> None:
        """Remove a queued request without charging its flow."""
        flow = self._flows[waiting.flow]
        flow.requests.discard(waiting)
        if not flow.requests:
            self._ready.discard(flow)
            self._leave(flow)

    def _leave(self, flow: _Flow) -> None:
        del self._flows[flow.name]
        accounts = self._accounts
        if flow.paid > accounts.clock:
            accounts.left[flow.name] = flow.paid
        if len(accounts.left) > MAX_LEFT_FLOWS:
            # Clients choose the names of flows. An account below the clock has no effect any more.
            ahead = {name: paid for name, paid in accounts.left.items() if paid > accounts.clock}
            accounts.left = ahead if len(ahead) <= MAX_LEFT_FLOWS else {}
