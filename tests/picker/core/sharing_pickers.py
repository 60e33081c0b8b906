"""Schedulers with their shared state, and the exchange of their messages."""

from collections.abc import Iterable
from random import Random

from tests.picker.core.cases import endpoint
from tests.picker.core.test_accounting import counters
from tg_picker.core import (
    Endpoint,
    InstanceRequest,
    Pick,
    Placement,
    Scheduler,
    SharedState,
)

ENDPOINTS = tuple(map(endpoint, "abc"))


STEP_SECONDS = 0.4


NOTHING = [0, 0, 0, {}, 0, 0]


ROUNDS = 20
"""Of STEP_SECONDS after the last fault; enough for a few questions and answers."""


class Picker:
    """A scheduler with its shared state."""

    def __init__(self, origin: int, known: Iterable[Endpoint] = ENDPOINTS) -> None:
        self.known = {each.address: each for each in known}
        self.scheduler = Scheduler("round-robin", random=Random(origin))
        self.shared = SharedState(self.scheduler, self.known.get, origin)
        self.placements: list[Placement] = []

    def pick(self, asked: InstanceRequest, now: float, at: int | None = None) -> Placement:
        made = self.scheduler.pick(asked, ENDPOINTS if at is None else ENDPOINTS[at : at + 1], now)
        assert isinstance(made, Pick)
        self.placements.append(made.placement)
        return made.placement

    def counters(self) -> list[list[object]]:
        """Without the times at which adapters are ready: they count from when one was told."""
        servers = map(self.scheduler.server, ENDPOINTS)
        return [[*counters(server)[:-1], server.room_tokens] for server in servers]

    def blocks(self) -> list[set[int]]:
        return [set(self.scheduler.server(each).prefixes.blocks) for each in ENDPOINTS]

    def loaded(self) -> list[set[str]]:
        return [set(self.scheduler.server(each).adapters.used_at) for each in ENDPOINTS]


def exchange(pickers: list[Picker], now: float) -> int:
    """Everyone's messages to everyone; their bytes."""
    size = 0
    for picker in pickers:
        for body in picker.shared.flush(now):
            size += len(body)
            for other in pickers:
                other.shared.receive(body, now)
    return size


def settle(pickers: list[Picker], now: float) -> float:
    for _ in range(ROUNDS):
        now += STEP_SECONDS
        exchange(pickers, now)
    return now
