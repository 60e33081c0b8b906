"""Seed -> scenario: who takes part, what is asked, and what goes wrong."""

from dataclasses import replace
from random import Random

from tests.simulation.scenario_terms import Asked, Fault, Helper, Kind, Mood, Scenario, Trouble, Worlds
from tests.simulation.scripted_model import Script
from tests.simulation.themes import MODELS, THEMED, themed
from tg_base.bus import MAX_MESSAGE_BYTES
from tg_base.client.warm_processes import MAX_DIRECT_BYTES

MOODS: tuple[Mood, ...] = ("calm", "mild", "rough")
FAULTS: dict[Fault, int] = {
    "pause": 6, "hold-in": 4, "hold-out": 4, "hold": 3, "kill": 4, "lose": 2, "stop": 2, "broker": 3, "reader": 2,
    "poison": 3, "slow": 2, "weather": 3, "refuse": 1,
}  # fmt: skip
"""How often each occurs. kill: the broker notices at once; lose: it does not, as if a cable were cut."""
MILD: tuple[Fault, ...] = ("pause", "hold", "weather", "poison", "slow")
"""What no stream may suffer from, as long as it is short or little."""
LONGEST_MILD = 1.1
"""Seconds: two of them one after the other, and a beat, are still less than what is taken for death."""
MILD_AMOUNTS: dict[Fault, float] = {"weather": 0.01, "slow": 0.4}
MIB = 1024 * 1024


def drawn(seed: int, worlds: Worlds = "any") -> Scenario:
    """The scenario of a seed in worlds of this kind."""
    sources = [Random(f"{what} {seed}") for what in ("scenario", "sizes", "processors", "keys")]
    scenario = themed(seed, 1.0 if worlds == "themed" else THEMED) or _Draw(*sources).scenario()
    permit, routed, chance = worlds == "permits", worlds == "routes", Random(f"routes {seed}")
    asked = (
        replace(each, permit=permit, routed=routed, script=_failing(each, chance) if routed else each.script)
        if each.kind in MODELS
        else each
        for each in scenario.asked
    )
    # A route needs a second queue.
    return replace(scenario, asked=tuple(asked), flows=("a", "b") if routed else scenario.flows)


def _failing(asked: Asked, chance: Random) -> Script:
    """The script of a request by a route, whose first model often fails; only one flow's, or none would be well."""
    return replace(asked.script, failing="a" if asked.flow == "a" and chance.random() < 0.3 else "")


class _Draw:
    """Draws one scenario.

    Themes are what a defect is likely to hide in: silence = one process is silent for long, while long streams run;
    resumption = a model is suspended for so long that it is taken for dead, in the middle of quick streams; burst =
    many requests at the same moment; plain = anything.
    """

    def __init__(self, random: Random, sizes: Random, processors: Random, keys: Random) -> None:
        self._random = random
        self._theme = random.choices(("plain", "silence", "resumption", "burst"), (64, 20, 8, 8))[0]
        self._mood: Mood = "rough" if self._theme == "resumption" else random.choices(MOODS, (15, 25, 60))[0]
        self._gateways = random.choice((1, 1, 2))
        self._capacities = self._drawn_capacities()
        self._keys = keys
        # In the other worlds the queue alone is looked at. A key chooses between two processes at least.
        self._warm = keys.random() < 0.4
        if self._warm and len(self._capacities) == 1:
            self._capacities *= 2
        self._flows = ("a", "b") if random.random() < 0.3 else ("a",)
        self._apart = len(self._flows) > 1 and processors.random() < 0.5
        self._helpers = self._drawn_helpers()
        self._processes = self._gateways + len(self._capacities) + len(self._helpers)
        self._troubles = self._drawn_troubles()
        self._quiet = max((trouble.time + trouble.seconds for trouble in self._troubles), default=0.0)
        self._far = 0.25 if self._theme == "resumption" else 0.1
        self._narrow = random.random() < 0.03
        self._sizes = sizes
        self._large = self._sizes.random() < 0.1

    def scenario(self) -> Scenario:
        """All of it."""
        random = self._random
        skewed = random.random() < 0.25
        requests = random.choice((12, 20)) if self._theme == "burst" else random.choice((2, 3, 4, 6))
        return Scenario(
            mood=self._mood,
            gateways=self._gateways,
            capacities=self._capacities,
            flows=self._flows,
            apart=self._apart,
            helpers=self._helpers,
            skews=tuple(random.uniform(-600, 600) if skewed else 0.0 for _ in range(self._processes)),
            latency=random.uniform(0.05, 0.12) if random.random() < self._far else 0.0005,
            jitter=random.choice((0.0, 0.001, 0.02)),
            step=random.choice((0.0, 0.00002, 0.0002, 0.001)),
            grid=random.choice((0.0, 0.0, 0.005, 0.05)),
            max_message=MIB if self._narrow else MAX_MESSAGE_BYTES,
            told_max_message=MIB if self._narrow and random.random() < 0.5 else MAX_MESSAGE_BYTES,
            asked=tuple(sorted((*map(self._asked, range(requests)), *self._warm_asked()), key=lambda one: one.time)),
            troubles=self._troubles,
        )

    def _drawn_capacities(self) -> tuple[int, ...]:
        sizes = (1, 1, 2, 4, 32)
        capacity = self._random.choice(sizes)
        same = self._random.random() < 0.8
        processes = self._random.choice((1, 1, 2, 2, 3))
        return tuple(capacity if same else self._random.choice(sizes) for _ in range(processes))

    def _drawn_helpers(self) -> tuple[Helper, ...]:
        chance = self._random.random()
        if chance < 0.7:
            return ()
        return ("prompt",) if chance < 0.85 else ("agent",)

    def _asked(self, number: int) -> Asked:
        random = self._random
        kinds: tuple[Kind, ...] = ("streamed", "streamed", "whole", *self._helpers * 3)
        kind = "streamed" if self._theme == "resumption" else random.choice(kinds)
        script = self._script(number, kind)
        return Asked(
            time=self._time(),
            gateway=random.randrange(self._gateways),
            flow="a" if kind in self._helpers else random.choice(self._flows),
            kind=kind,
            script=script,
            leaves_after=random.randrange(script.tokens + 1) if random.random() < 0.15 else None,
            dawdles=0.3 if random.random() < 0.05 else 0.0,
            timeout=random.choice((60.0, 60.0, 60.0, 60.0, 8.0)),
            padding=self._padding(kind),
        )

    def _warm_asked(self) -> list[Asked]:
        """Requests that begin alike, one after the other and side by side, from before the faults until behind them."""
        keys, last = self._keys, self._quiet + 4.0
        return [
            Asked(
                time=keys.uniform(0.5, last),
                gateway=keys.randrange(self._gateways),
                flow=keys.choice(self._flows),
                kind=keys.choice(("streamed", "whole")),
                script=Script(
                    f"w{number}",
                    keys.choice((1, 3, 10)),
                    first=keys.choice((0.0, 0.01, 0.2)),
                    pace=keys.choice((0.001, 0.05, 0.2)),
                ),
                leaves_after=keys.randrange(3) if keys.random() < 0.15 else None,
                padding=MAX_DIRECT_BYTES * keys.randrange(1, 6) if keys.random() < 0.1 else 0,
                cache_key=keys.choice("kkkl"),
            )
            for number in range(keys.choice((4, 8, 16)) if self._warm else 0)
        ]

    def _padding(self, kind: Kind) -> int:
        """Nearly always none: it takes the test's own time."""
        if not self._large or kind in self._helpers or self._sizes.random() < 0.3:
            return 0
        limit = MIB if self._narrow else MAX_MESSAGE_BYTES
        return limit + self._sizes.randrange(2 * MIB)

    def _time(self) -> float:
        random = self._random
        if self._theme == "burst":
            return 1.5
        if random.random() < 0.2:
            return self._quiet + random.uniform(6.5, 8.0)
        if self._theme == "silence":
            return random.uniform(0.7, 4.0)
        if self._theme == "resumption":
            return random.choice((random.uniform(1.0, 1.5), random.uniform(1.0, 1.5), random.uniform(1.5, 2.2)))
        return random.choice((0.7, random.uniform(0.3, 6.0)))

    def _script(self, number: int, kind: Kind) -> Script:
        random = self._random
        if self._theme == "resumption":
            return Script(f"r{number}", 300, first=0.01, pace=random.choice((0.005, 0.01, 0.02)))
        long = self._theme == "silence" and random.random() < 0.6
        tokens = random.choice((30, 60)) if long else random.choice((1, 3, 10, 30))
        return Script(
            f"r{number}",
            tokens,
            first=random.choice((0.0, 0.01, 0.2, 1.0)),
            pace=random.choice((0.03, 0.1, 0.2)) if long else random.choice((0.0, 0.001, 0.05, 0.2)),
            size=1_300_000 // tokens if self._narrow and random.random() < 0.3 else 0,
            fails=random.random() < 0.05,
            react=random.choice(("call", "answer")) if kind == "agent" else "",
        )

    def _drawn_troubles(self) -> tuple[Trouble, ...]:
        random = self._random
        if self._mood == "calm":
            return ()
        if self._theme == "resumption":
            return (Trouble(random.uniform(1.8, 2.2), "pause", self._gateways, random.uniform(3.6, 6.0), 0.0),)
        if self._mood == "mild":
            return tuple(self._trouble(random.choice(MILD)) for _ in range(random.randint(1, 2)))
        if self._theme == "silence":
            faults = tuple(self._silence() for _ in range(random.choice((1, 1, 2))))
            return (*faults, *(self._trouble(random.choice(tuple(FAULTS))) for _ in range(random.choice((0, 0, 1)))))
        number = random.choice((1, 1, 2, 2, 3, 4))
        return tuple(self._trouble(fault) for fault in random.choices(tuple(FAULTS), tuple(FAULTS.values()), k=number))

    def _silence(self) -> Trouble:
        random = self._random
        fault: Fault = random.choice(("pause", "pause", "hold", "hold-in", "hold-out", "broker"))
        seconds = random.choice((random.uniform(3.4, 6.0), random.uniform(5.0, 15.0)))
        return Trouble(random.uniform(1.5, 4.0), fault, random.randrange(self._processes), seconds, random.random())

    def _trouble(self, fault: Fault) -> Trouble:
        random, mild = self._random, self._mood == "mild"
        longest = LONGEST_MILD if mild else random.choice((1.0, 4.0, 6.0, 6.0, 9.0, 20.0))
        seconds = 0.0 if fault in {"reader", "poison"} else random.uniform(0.1, longest)
        if fault in {"kill", "lose", "stop"}:
            seconds = random.uniform(0.1, 3.0)
        if fault in {"broker", "refuse"}:
            seconds = random.uniform(0.1, 6.0)
        amount = random.random() * (MILD_AMOUNTS.get(fault, 1.0) if mild else 1.0)
        return Trouble(random.uniform(0.8, 5.0), fault, random.randrange(self._processes), seconds, amount)
