"""Arrivals -> one of several schedulers, as behind a balancer; they tell each other what they place, a little later."""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random

from tg_base.instances import (
    DEFAULT_TIMING,
    Endpoint,
    InstanceRequest,
    LoadReport,
    Pick,
    Policy,
    Rejection,
    Scheduler,
    SharedState,
)

FLUSH_SECONDS = 0.02
"""How long each gathers what it tells, as in a picker's process."""
DELAY_SECONDS = 0.005
"""From one picker to the others; a broker's median for a message that it does not keep is 1 to 2 ms."""


class Pickers:
    """Stands where one scheduler would. Whatever is due on the bus is done before the next call.

    Args:
        many: schedulers; each request goes to any of them.
        shared: whether they tell each other anything.
        policy: of each.
        admission: of each.
        seed: of ties, and of who gets a request.
        endpoints: all servers.

    Attributes:
        sent_bytes: of all messages, each counted once.
    """

    def __init__(
        self,
        many: int,
        policy: str | Policy,
        admission: str,
        seed: int,
        endpoints: Sequence[Endpoint],
        *,
        shared: bool,
    ) -> None:
        self.sent_bytes = 0
        self._draw = Random(f"balancer {seed}")
        self._schedulers = [Scheduler(policy, admission, random=Random(f"ties {seed} {at}")) for at in range(many)]
        known = {endpoint.address: endpoint for endpoint in endpoints}
        told = enumerate(self._schedulers if shared else [])
        self._tellers = [_Teller(each, known.get, at + 1) for at, each in told]
        self._under_way: deque[tuple[float, _Teller, bytes]] = deque()

    def pick(self, request: InstanceRequest, endpoints: Sequence[Endpoint], now: float) -> Pick | Rejection:
        """Have one of them pick."""
        self._catch_up(now)
        return self._draw.choice(self._schedulers).pick(request, endpoints, now)

    def observe(self, endpoint: Endpoint, report: LoadReport) -> None:
        """Tell all of them what a server tells."""
        self._catch_up(report.read_at)
        for each in self._schedulers:
            each.observe(endpoint, report)

    def restarted(self, endpoint: Endpoint) -> None:
        """Tell all of them that a server began anew."""
        for each in self._schedulers:
            each.restarted(endpoint)

    def _catch_up(self, now: float) -> None:
        for teller in self._tellers:
            if teller.is_due(now):
                teller.flushed_at, teller.is_woken = now, False
                for body in teller.state.flush(now):
                    self.sent_bytes += len(body)
                    self._under_way.append((now + DELAY_SECONDS, teller, body))
        while self._under_way and self._under_way[0][0] <= now:
            at, teller, body = self._under_way.popleft()
            for each in self._tellers:
                if each is not teller:
                    each.state.receive(body, at)


class _Teller:
    """One scheduler's end of the bus: what happens after a pause is told at once, what follows is gathered."""

    def __init__(self, scheduler: Scheduler, find: Callable[[str], Endpoint | None], origin: int) -> None:
        self.state = SharedState(scheduler, find, origin, self._wake)
        self.flushed_at = float("-inf")
        self.is_woken = True

    def _wake(self) -> None:
        self.is_woken = True

    def is_due(self, now: float) -> bool:
        return now - self.flushed_at >= (FLUSH_SECONDS if self.is_woken else DEFAULT_TIMING.heartbeat / 2)
