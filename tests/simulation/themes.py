"""Seed -> scenario: worlds in which a promise is easily broken that chance alone seldom puts to the test.

One world in five is one of them. They draw from a source of their own, so the other worlds do not depend on them.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.scenario_terms import Asked, Fault, Kind, Scenario, Trouble
from tests.simulation.scripted_model import Script
from tg_base.bus import MAX_MESSAGE_BYTES

THEMED: Final = 0.2
"""How many worlds are of these."""
MODELS: Final = ("streamed", "whole")
"""What is asked of models."""
_Theme = Callable[[Random], Scenario]


def themed(seed: int, share: float = THEMED) -> Scenario | None:
    """The scenario of a seed that has one of these, as this share of them has; None = it is of the other kind."""
    random = Random(f"themes {seed}")
    return random.choice(_THEMES)(random) if random.random() < share else None


def _leaving(random: Random) -> Scenario:
    """Callers leave in the middle, also of answers that show nothing for long; messages get lost."""
    asked = [
        _asked(
            random,
            number,
            random.uniform(1.0, 5.0),
            first=random.uniform(4.0, 9.0),
            stays=random.uniform(0.05, 3.0) if random.random() < 0.8 else None,
        )
        for number in range(12)
    ]
    lossy = random.random() < 0.6
    weather = Trouble(0.8, "weather", 0, 12.0, random.uniform(0.1, 0.5))
    return _world(random, random.choice(((16,), (12, 12))), asked, (weather,) if lossy else ())


def _waiting(random: Random) -> Scenario:
    """More requests than slots; some callers leave the queue, others' time is over in it."""
    capacities = random.choice(((1,), (2,), (1, 1)))
    asked = [
        _asked(
            random,
            number,
            random.uniform(2.0, 4.0),
            first=random.uniform(0.3, 1.5),
            stays=random.uniform(0.3, 4.0) if random.random() < 0.4 else None,
            timeout=random.choice((60.0, 60.0, random.uniform(1.0, 4.0))),
        )
        for number in range(random.choice((6, 8, 10)))
    ]
    return _world(random, capacities, asked)


def _draining(random: Random) -> Scenario:
    """A process is asked to stop while it answers."""
    asked = []
    longest = random.choice((1.4, 1.4, 3.0))
    for number in range(random.choice((3, 8))):
        one = _asked(random, number, random.uniform(1.0, 3.5), first=random.choice((0.0, random.uniform(0.0, longest))))
        # Quick ones: far from the broker, the last text waits for what is on its way.
        script = replace(one.script, tokens=random.choice((1, 10, 30)), pace=random.choice((0.001, 0.001, 0.05)))
        asked.append(replace(one, script=script))
    stop = Trouble(random.uniform(1.5, 3.5), "stop", 1, random.uniform(0.1, 1.0), 0.0)
    return _world(random, random.choice(((8,), (2, 4), (8, 8))), asked, (stop,), far=0.7)


def _orphaned(random: Random) -> Scenario:
    """A gateway dies while models work for it, for long."""
    asked = [_asked(random, number, random.uniform(1.0, 2.0), first=random.uniform(8.0, 14.0)) for number in range(4)]
    fault: Fault = random.choice(("kill", "lose"))
    return _world(random, (8,), asked, (Trouble(2.5, fault, 0, random.uniform(0.1, 1.0), 0.0),))


def _dying(random: Random) -> Scenario:
    """One process of several dies, or is silent, mostly before it has shown anything."""
    asked = [
        _asked(random, number, random.uniform(0.7, 4.0), first=random.choice((0.1, 1.0, random.uniform(1.0, 4.0))))
        for number in range(6)
    ]
    fault: Fault = random.choice(("kill", "kill", "lose", "pause", "hold"))
    seconds = random.uniform(0.1, 3.0) if fault in {"kill", "lose"} else random.uniform(3.6, 8.0)
    trouble = Trouble(random.uniform(1.5, 4.0), fault, 1, seconds, 0.0)
    return _world(random, random.choice(((4, 4), (1, 4), (2, 2, 2))), asked, (trouble,))


def _forgetting(random: Random) -> Scenario:
    """The broker dies, and hands out again what was acknowledged: before the first token, or while a caller reads."""
    crash = random.uniform(2.0, 3.0)
    asked = [
        replace(
            _asked(
                random, number, crash - random.uniform(0.0, 1.2), first=random.choice((0.0, random.uniform(1.0, 4.0)))
            ),
            dawdles=random.choice((0.0, 0.0, 0.4)),
        )
        for number in range(8)
    ]
    trouble = Trouble(crash, "broker", 0, random.uniform(0.1, 1.0), random.uniform(0.5, 1.0))
    return _world(random, random.choice(((8,), (8, 8), (4, 4, 4))), asked, (trouble,))


def _repeating(random: Random) -> Scenario:
    """The broker hands out a second copy of many requests, whose answers end at once."""
    asked = []
    for number in range(40):
        one = _asked(random, number, random.uniform(2.0, 6.0), first=0.0)
        asked.append(replace(one, script=replace(one.script, tokens=random.choice((1, 3)), pace=0.001)))
    return _world(random, random.choice(((8,), (8,), (4, 4))), asked, (Trouble(1.0, "weather", 0, 8.0, 0.0),), far=0.0)


def _backlog(random: Random) -> Scenario:
    """A gateway hears nothing for nearly as long as it takes to be taken for dead, while quick answers run to it."""
    large = random.random() < 0.3
    script = {"tokens": 90, "pace": 0.01, "size": 60_000} if large else {"tokens": 420, "pace": 0.004}
    asked = [
        Asked(1.0 + random.random() / 10, 0, "a", "streamed", Script(f"b{number}", first=0.0, **script))  # type: ignore[arg-type]
        for number in range(4 if large else 1)
    ]
    fault: Fault = random.choice(("hold-in", "pause"))
    return _world(random, (8,), asked, (Trouble(1.2, fault, 0, random.uniform(2.5, 3.2), 0.0),))


_THEMES: Final[tuple[_Theme, ...]] = (
    *(2 * (_leaving, _waiting, _draining, _dying, _forgetting, _repeating)),
    _backlog,
    _orphaned,
)


def _asked(
    random: Random, number: int, time: float, *, first: float, stays: float | None = None, timeout: float = 60.0
) -> Asked:
    kind: Kind = random.choice(MODELS)
    script = Script(f"t{number}", random.choice((1, 3, 10)), first, pace=random.choice((0.001, 0.05, 0.2)))
    return Asked(time, 0, "a", kind, script, timeout=timeout, stays=stays)


def _world(
    random: Random,
    capacities: tuple[int, ...],
    asked: Iterable[Asked],
    troubles: tuple[Trouble, ...] = (),
    *,
    far: float = 0.15,
) -> Scenario:
    """One gateway, which is process 0, and models. `far`: how likely the broker is far away."""
    return Scenario(
        mood="rough" if troubles else "calm",
        gateways=1,
        capacities=capacities,
        flows=("a",),
        apart=False,
        helpers=(),
        skews=tuple(random.choice((0.0, 0.0, random.uniform(-600, 600))) for _ in range(1 + len(capacities))),
        latency=random.uniform(0.05, 0.12) if random.random() < far else 0.0005,
        jitter=random.choice((0.0, 0.001, 0.02)),
        grid=random.choice((0.0, 0.0, 0.005)),
        step=random.choice((0.0, 0.00002, 0.0002)),
        max_message=MAX_MESSAGE_BYTES,
        told_max_message=MAX_MESSAGE_BYTES,
        asked=tuple(sorted(asked, key=lambda one: one.time)),
        troubles=troubles,
    )
