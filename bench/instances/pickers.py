"""Arrivals -> one of several schedulers, as behind a balancer; they tell each other what they place, a little later."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from bench.instances.baselines.policies import make_policy
from tg_picker.core import (
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


class Timer(Protocol):
    """Virtual time."""

    now: float

    def at(self, time: float, act: Callable[[], None]) -> None:
        """Have something done then."""
        ...


class Pickers:
    """Stands where one scheduler would.

    Args:
        many: schedulers; each request goes to any of them.
        shared: whether they tell each other anything.
        policy: of each.
        admission: of each.
        seed: of ties, and of who gets a request.
        endpoints: all servers.
        timer: by which they tell each other.

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
        timer: Timer,
        shared: bool,
    ) -> None:
        self.sent_bytes = 0
        self._timer = timer
        self._draw = Random(f"balancer {seed}")
        ties = [Random(f"ties {seed} {at}") for at in range(many)]
        self._schedulers = [Scheduler(make_policy(policy), admission, random=each) for each in ties]
        known = {endpoint.address: endpoint for endpoint in endpoints}
        told = enumerate(self._schedulers if shared else [])
        self._tellers = [_Teller(each, known.get, at + 1, timer, self._send) for at, each in told]

    def pick(self, request: InstanceRequest, endpoints: Sequence[Endpoint], now: float) -> Pick | Rejection:
        """Have one of them pick."""
        return self._draw.choice(self._schedulers).pick(request, endpoints, now)

    def observe(self, endpoint: Endpoint, report: LoadReport) -> None:
        """Tell all of them what a server tells."""
        for each in self._schedulers:
            each.observe(endpoint, report)

    def _send(self, teller: "_Teller", body: bytes) -> None:
        self.sent_bytes += len(body)

        def arrive() -> None:
            for each in self._tellers:
                if each is not teller:
                    each.state.receive(body, self._timer.now)

        self._timer.at(self._timer.now + DELAY_SECONDS, arrive)


class _Teller:
    """One scheduler's end of the bus: what happens after a pause is told at once, what follows is gathered."""

    def __init__(
        self,
        scheduler: Scheduler,
        find: Callable[[str], Endpoint | None],
        origin: int,
        timer: Timer,
        send: Callable[["_Teller", bytes], None],
    ) -> None:
        self.state = SharedState(scheduler, find, origin, self._wake)
        self._timer = timer
        self._send = send
        self._flushed_at = float("-inf")
        self._is_woken = False
        self._beat()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._timer.at(max(self._timer.now, self._flushed_at + FLUSH_SECONDS), self._flush)

    def _flush(self) -> None:
        self._is_woken, self._flushed_at = False, self._timer.now
        for body in self.state.flush(self._timer.now):
            self._send(self, body)

    def _beat(self) -> None:
        self._wake()
        self._timer.at(self._timer.now + DEFAULT_TIMING.heartbeat / 2, self._beat)
