"""The loads of the simulation, by name. Distributions that are not published are named where they are taken."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from bench.instances.conversations import code_generation, reasoning
from bench.instances.job import Job
from bench.instances.prompts import prompt
from bench.instances.server_model import LLAMA_7B, QWEN_32B, ServerModel
from bench.instances.simulation import Crash, Load

SERVERS = 8
MIN_TOKENS = 8
OBJECTIVE_SECONDS = 1.0
SLOTS = 5
BURST_EVERY_SECONDS, BURST_SECONDS = 10.0, 3.0
CHURN_SECONDS = 6.0


@dataclass(frozen=True)
class LoadKind:
    """How a load is made, and at which rates.

    Attributes:
        make: from a source of chance, a rate and seconds.
        normal: requests a second (sessions at once, for loads made of conversations).
        hard: where the best peer misses 5 to 20 % of its objectives.
        stretch: how many times longer it runs than the others: long answers need long runs.
    """

    make: Callable[[Random, float, float], Load]
    normal: float
    hard: float
    stretch: float = 1.0


def lognormal(random: Random, mean: float, sigma: float, most: int) -> int:
    """A whole number above MIN_TOKENS with about this mean."""
    return min(
        max(int(random.lognormvariate(0.0, sigma) * mean / 2.718281828 ** (sigma * sigma / 2)), MIN_TOKENS), most
    )


def poisson(random: Random, rate: Callable[[float], float], peak: float, seconds: float) -> list[float]:
    """Times of arrival at a rate that changes, up to `peak`."""
    times: list[float] = []
    now = 0.0
    while True:
        now += random.expovariate(peak)
        if now >= seconds:
            return times
        if random.random() * peak < rate(now):
            times.append(now)


class Zipf:
    """Picks 0 to n - 1, the first most often."""

    def __init__(self, n: int, exponent: float) -> None:
        self._bounds = list(accumulate((rank + 1) ** -exponent for rank in range(n)))

    def __call__(self, random: Random) -> int:
        """One pick."""
        return bisect_left(self._bounds, random.random() * self._bounds[-1])


def llama(slots: int = SLOTS, servers: int = SERVERS) -> list[ServerModel]:
    """Equal servers of the older constants."""
    return [replace(LLAMA_7B, slots=slots)] * servers


def short_job(random: Random, arrival: float, adapter: str | None, priority: int = 0) -> Job:
    """A chat: about 250 tokens in and 150 out, log-normal."""
    tokens, output = lognormal(random, 250, 0.7, 2_000), lognormal(random, 150, 0.7, 1_000)
    return Job(arrival, tokens, output, OBJECTIVE_SECONDS, adapter, priority=priority)


def chats(n: int, exponent: float, slots: int) -> Callable[[Random, float, float], Load]:
    """Chats at a steady rate with one of n adapters each, or with the base model alone."""

    def make(random: Random, rate: float, seconds: float) -> Load:
        pick = Zipf(max(n, 1), exponent)
        times = poisson(random, lambda _: rate, rate, seconds)
        jobs = [short_job(random, at, f"a{pick(random)}" if n else None) for at in times]
        return Load(llama(slots), seconds, jobs)

    return make


def _burst(random: Random, rate: float, seconds: float) -> Load:
    """40 adapters; every ten seconds one of them gets, for three seconds, as much again as all."""
    pick = Zipf(40, 0.8)

    def bursts(now: float) -> bool:
        return now % BURST_EVERY_SECONDS < BURST_SECONDS

    times = poisson(random, lambda now: rate * (2 if bursts(now) else 1), 2 * rate, seconds)
    jobs = []
    for at in times:
        hot = bursts(at) and random.random() < 0.5
        adapter = 7 + int(at / BURST_EVERY_SECONDS) if hot else pick(random)
        jobs.append(short_job(random, at, f"a{adapter}"))
    return Load(llama(), seconds, jobs)


def _overload(random: Random, rate: float, seconds: float) -> Load:
    """Twelve adapters, half of the requests sheddable, above what the servers can do."""
    pick = Zipf(12, 0.8)
    times = poisson(random, lambda _: rate, rate, seconds)
    jobs = [short_job(random, at, f"a{pick(random)}", -(random.random() < 0.5)) for at in times]
    return Load(llama(), seconds, jobs)


def _hetero(random: Random, rate: float, seconds: float) -> Load:
    """Twelve adapters; half of the servers at half the speed."""
    load = chats(12, 0.8, SLOTS)(random, rate, seconds)
    load.servers = [replace(model, speed=0.5 if index % 2 else 1.0) for index, model in enumerate(load.servers)]
    return load


def _churn(random: Random, rate: float, seconds: float) -> Load:
    """Thirty adapters whose popularity moves on by seven every six seconds; one server is down for a while."""
    pick = Zipf(30, 1.0)
    times = poisson(random, lambda _: rate, rate, seconds)
    jobs = [short_job(random, at, f"a{(pick(random) + 7 * int(at / CHURN_SECONDS)) % 30}") for at in times]
    return Load(llama(), seconds, jobs, crashes=[Crash(0.4 * seconds, 0.6 * seconds, 3)])


def _prefix(adapters: int) -> Callable[[Random, float, float], Load]:
    """80 prefixes of 1,000 tokens in prompts of 1,250; each belongs to an adapter, if there are any."""

    def make(random: Random, rate: float, seconds: float) -> Load:
        pick = Zipf(80, 0.8)
        jobs = []
        for number, at in enumerate(poisson(random, lambda _: rate, rate, seconds)):
            group = pick(random)
            blocks = prompt(("p", group), 1_000, ("r", number), 250)
            adapter = f"a{group % adapters}" if adapters else None
            output = lognormal(random, 60, 0.7, 400)
            jobs.append(Job(at, 1_250, output, OBJECTIVE_SECONDS, adapter, blocks))
        return Load(llama(SLOTS if adapters else 0), seconds, jobs)

    return make


def _saas(random: Random, rate: float, seconds: float) -> Load:
    """150 system prompts of 6,000 tokens, 1,200 in, 1,000 out (of half to one and a half times), Poisson."""
    jobs = []
    for number, at in enumerate(poisson(random, lambda _: rate, rate, seconds)):
        blocks = prompt(("s", random.randrange(150)), 6_000, ("r", number), 1_200)
        jobs.append(Job(at, 7_200, random.randrange(500, 1_500), 2.0, None, blocks))
    return Load([QWEN_32B] * 8, seconds, jobs)


LOADS: dict[str, LoadKind] = {
    "few-adapters": LoadKind(chats(12, 0.8, 3), 60, 95),
    "many-adapters": LoadKind(chats(60, 0.6, SLOTS), 12, 22),
    "heavy-tail": LoadKind(chats(200, 1.1, SLOTS), 12, 20),
    "burst": LoadKind(_burst, 30, 48),
    "overload": LoadKind(_overload, 80, 105),
    "unequal-servers": LoadKind(_hetero, 60, 90),
    "churn-crash": LoadKind(_churn, 50, 80),
    "prefix": LoadKind(_prefix(0), 60, 150),
    "prefix-adapters": LoadKind(_prefix(20), 60, 140),
    "code-generation": LoadKind(code_generation, 30, 48, 4.0),
    "reasoning": LoadKind(reasoning, 600, 1_220, 12.0),
    "b2b-saas": LoadKind(_saas, 9, 13, 9.0),
}
"""By name."""
