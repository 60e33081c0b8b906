"""What a scenario is made of: who takes part, what is asked, and what goes wrong."""

from dataclasses import dataclass
from typing import Literal

from tests.simulation.scripted_model import Script

Kind = Literal["streamed", "whole", "prompt", "agent", "waits", "kept"]
Fault = Literal[
    "pause",
    "hold-in",
    "hold-out",
    "hold",
    "kill",
    "lose",
    "stop",
    "broker",
    "reader",
    "poison",
    "slow",
    "weather",
    "refuse",
]
Worlds = Literal["any", "themed", "permits", "routes", "waiting", "kept"]
"""Kinds of worlds. themed: those of `themes.py` alone, of which any has a few; permits: each request to a model has its
caller's permit; routes: each goes by a route, to another flow's queue after a failure; waiting: answers wait for
room; kept: streams outlive their readers' connections, and the processes that make and show them."""
Mood = Literal["calm", "mild", "rough"]
Helper = Literal["prompt", "agent"]


@dataclass(frozen=True)
class Asked:
    """One request.

    Attributes:
        time: when it is asked.
        gateway: by which of them.
        flow: on which flow's queue.
        leaves_after: records after which the caller leaves; None = it stays.
        dawdles: seconds that it takes for each record.
        timeout: seconds that it waits in all.
        padding: characters by which the request is larger than it must be; with many of them it travels in parts.
        cache_key: who has it begins alike.
        permit: whether it begins only with its caller's permit, and so once at most.
        routed: whether it goes by the route that begins with its flow.
        attempts: how often a model may be asked for an answer that waits for room.
        stays: seconds after which the caller leaves, whatever has come; None = it stays.
    """

    time: float
    gateway: int
    flow: str
    kind: Kind
    script: Script
    leaves_after: int | None = None
    dawdles: float = 0.0
    timeout: float = 60.0
    padding: int = 0
    cache_key: str | None = None
    permit: bool = False
    routed: bool = False
    stays: float | None = None
    attempts: int = 1


@dataclass(frozen=True)
class Trouble:
    """One thing that goes wrong.

    Attributes:
        time: when.
        fault: what.
        target: to which process, as a number that is taken modulo how many there are.
        seconds: for how long.
        amount: how much of it, from 0 to 1.
    """

    time: float
    fault: Fault
    target: int
    seconds: float
    amount: float


@dataclass(frozen=True)
class Scenario:
    """Everything that a seed decides before the world begins.

    Attributes:
        mood: calm = nothing goes wrong; mild = only what a stream must survive; rough = anything.
        capacities: of each model process.
        flows: whose queues each model process reads.
        apart: whether it has a processor for each of them, which share its host; otherwise one for all.
        step: seconds that one iteration of a loop takes: only then something can come between two of them.
        skews: seconds by which each process's wall clock is ahead, gateways first.
    """

    mood: Mood
    gateways: int
    capacities: tuple[int, ...]
    flows: tuple[str, ...]
    apart: bool
    helpers: tuple[Helper, ...]
    skews: tuple[float, ...]
    latency: float
    jitter: float
    grid: float
    step: float
    max_message: int
    told_max_message: int
    asked: tuple[Asked, ...]
    troubles: tuple[Trouble, ...]

    @property
    def quiet(self) -> float:
        """When the last fault has ended."""
        return max((trouble.time + trouble.seconds for trouble in self.troubles), default=0.0)
