"""Seed -> outcome: one world from its beginning to its rest."""

import gc
import hashlib
import logging
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import structlog

from tests.simulation.faults import Faults
from tests.simulation.judge import LOOK, Judge
from tests.simulation.ledger import Violation
from tests.simulation.scenario import drawn
from tests.simulation.scenario_terms import Scenario, Worlds
from tests.simulation.simulator import Endless, Simulator
from tests.simulation.world import World
from tg_base.telemetry.trace import Ids, set_source

Make = Callable[[Simulator, Scenario], tuple[World, Judge]]
"""Makes the world of a scenario, and who looks at it."""


@dataclass(frozen=True)
class Outcome:
    """What became of a seed.

    Attributes:
        seed: which.
        violations: broken promises; none = good.
        ends: how its streams ended.
        seconds: of simulated time.
        steps: iterations of loops.
        faults: what went wrong.
        trace: a hash of all that happened; empty where nobody listened.
    """

    seed: int
    violations: tuple[Violation, ...]
    ends: tuple[str, ...]
    seconds: float
    steps: int
    faults: str
    trace: str = ""


def run(seed: int, worlds: Worlds = "any", *, listen: Callable[[str], None] | None = None) -> Outcome:
    """Run the scenario of a seed. With `listen`, every event is told, and their hash is part of the outcome."""
    if worlds == "waiting":
        # Here, since most runs do without a gateway, which takes longer to import than a hundred worlds to run.
        from tests.simulation.waiting_world import drawn_waiting, make_waiting  # noqa: PLC0415

        return run_scenario(seed, drawn_waiting(seed), make_waiting, listen=listen)
    if worlds == "kept":
        from tests.simulation.kept_world import drawn_kept, make_kept  # noqa: PLC0415 - as above

        return run_scenario(seed, drawn_kept(seed), make_kept, listen=listen)
    return run_scenario(seed, drawn(seed, worlds), listen=listen)


def _make(simulator: Simulator, scenario: Scenario) -> tuple[World, Judge]:
    world = World(simulator, scenario)
    return world, Judge(world)


def run_scenario(
    seed: int,
    scenario: Scenario,
    make: Make = _make,
    *,
    listen: Callable[[str], None] | None = None,
) -> Outcome:
    """Run a scenario in a world that is made of it; the seed decides everything that it leaves open."""
    digest = hashlib.blake2b(digest_size=16)

    def trace(line: str) -> None:
        digest.update(line.encode())
        if listen is not None:
            listen(line)

    if listen is not None:
        listen(str(scenario))
    with _Quiet() as quiet:
        # Nothing here keeps the world: what it leaves behind is looked for below.
        outcome = _observed(Simulator(seed, trace=trace if listen is not None else None), scenario, make, quiet)
        set_source(Ids())
        # Killed processes unwind here, and make garbage of their own. What is left would end outside, and be printed.
        while gc.collect():
            pass
    return outcome if listen is None else replace(outcome, seed=seed, trace=digest.hexdigest())


def _observed(simulator: Simulator, scenario: Scenario, make: Make, quiet: "_Quiet") -> Outcome:
    world, judge = make(simulator, scenario)
    quiet.listen(world)
    _live(world, judge)
    violations = tuple(world.ledger.violations)
    ends = tuple(str(stream.ended) for stream in world.ledger.streams.values())
    quiet.listen(None)
    for process in world.processes:
        process.kill()
    simulator.trace = None
    sys.set_asyncgen_hooks(None, None)
    faults = ", ".join(f"{one.fault} at {one.time:.1f} for {one.seconds:.1f} s" for one in world.scenario.troubles)
    return Outcome(simulator.seed, violations, ends, simulator.now, simulator.steps, faults)


def _live(world: World, judge: Judge) -> None:
    simulator, scenario = world.simulator, world.scenario
    weather = simulator.weather
    weather.latency, weather.jitter, weather.grid = scenario.latency, scenario.jitter, scenario.grid
    faults = Faults(world)
    for process in world.processes:
        simulator.at(simulator.random.random() * 0.3, process.start)
    for asked in scenario.asked:
        simulator.at(asked.time, world.ask, asked)
    for trouble in scenario.troubles:
        simulator.at(trouble.time, faults.happen, trouble)

    def look() -> None:
        judge.look()
        simulator.over = judge.over
        simulator.after(LOOK, look)

    look()
    try:
        simulator.run()
        if not world.ledger.violations:
            judge.finish()
    except Endless:
        world.ledger.broken("endless", "the loops go in circles")


class _Quiet:
    """No log but what tells of a defect, and no garbage collection at its own times.

    A coroutine that nobody awaits, or an error that nobody can catch, is a defect while the world lives. Afterwards
    nothing is told: where killed processes unwind, there is no loop any more that would run what they begin.
    """

    def __enter__(self) -> Self:
        gc.disable()
        self.listen(None)
        self._hook, sys.unraisablehook = sys.unraisablehook, self._found
        logging.disable(logging.CRITICAL)
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=".* was never awaited", category=RuntimeWarning)
        return self

    def _found(self, unraisable: "sys.UnraisableHookArgs") -> None:
        if self._world is not None:
            self._world.ledger.broken("defect", f"{unraisable.exc_value!r}")

    def listen(self, world: World | None) -> None:
        """Tell this world what stands in the log, and what nobody can catch."""
        self._world = world
        structlog.configure(
            processors=[self._heard],
            wrapper_class=structlog.make_filtering_bound_logger(
                "debug" if world is not None and world.simulator.trace else "error"
            ),
            logger_factory=structlog.ReturnLoggerFactory(),
            cache_logger_on_first_use=False,
        )

    def _heard(self, logger: Any, method: str, event: Any) -> str:
        if self._world is None:
            return ""
        if method in {"error", "critical", "exception"}:
            self._world.ledger.broken("defect", f"{event.get('event')} {_told(event.get('exc_info'))}")
        else:
            self._world.simulator.note("log", f"{event}")
        return ""

    def __exit__(self, *error: object) -> None:
        structlog.reset_defaults()
        logging.disable(logging.NOTSET)
        self._warnings.__exit__(None, None, None)
        sys.unraisablehook = self._hook
        gc.enable()


def _told(error: Any) -> str:
    return repr(sys.exc_info()[1] if error is True else error)
