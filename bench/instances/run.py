"""One cell of the table -> its score."""

from dataclasses import dataclass
from random import Random

from bench.instances.baselines.policies import ALL_POLICIES
from bench.instances.loads import LOADS
from bench.instances.score import Score, score
from bench.instances.simulation import Load, Simulation
from bench.instances.trace import Trace, replay

WARM_UP_SHARE = 0.25
"""Of a run: caches and slots fill, and the policies learn."""
SHEDDING = {"weighted": "threshold", "weighted-lora": "threshold", "lora-residency": "threshold"}
"""The admission rule that a policy runs with where none is named; the others refuse nothing, or by themselves."""
WAITING = "waiting"
PEERS = [*ALL_POLICIES, "weighted-lora/probabilistic"]


@dataclass(frozen=True)
class Run:
    """One load at one rate under one policy with one seed.

    Attributes:
        load: its name.
        rate: "normal", "hard" or a number.
        policy: POLICY, POLICY/ADMISSION, or POLICY/waiting: requests wait in bands where no server has room.
        seed: of the load and of ties. Every policy sees the same requests.
        seconds: of arrivals.
        trace: a recorded load, in place of a made one; a rate of 2 replays it twice as fast.
        pickers: among which the requests are spread.
        shared: whether these tell each other what they place.
    """

    load: str
    rate: str
    policy: str
    seed: int
    seconds: float
    trace: Trace | None = None
    pickers: int = 1
    shared: bool = True


def run(asked: Run) -> Score:
    """Simulate it."""
    load = _load(asked)
    policy, rule, waits = rule_of(asked.policy)
    warm_up = WARM_UP_SHARE * load.seconds
    simulation = Simulation(
        load, policy, rule, asked.seed, warm_up, waits=waits, pickers=asked.pickers, shared=asked.shared
    )
    return score(simulation.run(), warm_up)


def rule_of(policy: str) -> tuple[str, str, bool]:
    """The name of a policy, that of its admission rule, and whether requests wait where no server has room."""
    name, _, admission = policy.partition("/")
    waits = admission == WAITING
    return name, "always" if waits else admission or SHEDDING.get(name, "always"), waits


def _load(asked: Run) -> Load:
    if asked.trace is not None:
        return replay(asked.trace, float(asked.rate), asked.seconds)
    kind = LOADS[asked.load]
    rate = {"normal": kind.normal, "hard": kind.hard}.get(asked.rate) or float(asked.rate)
    return kind.make(Random(f"{asked.load} {asked.seed}"), rate, kind.stretch * asked.seconds)
