"""A number -> a world: an engine, servers, adapters, prompts, faults and a load, all drawn at random.

A policy that was tuned on one simulator fits that simulator. Each number draws another one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log
from random import Random

from bench.instances.job import Job
from bench.instances.loads import Zipf, lognormal, poisson
from bench.instances.prompts import prompt
from bench.instances.server_model import TOLD_FIELDS, ServerModel
from bench.instances.simulation import Crash, Load, Stall
from tg_picker.core.interface import NO_FINGERPRINT

REQUESTS = 900
"""Of a world. Its seconds follow from its rate."""
MAX_SECONDS = 600.0


@dataclass(frozen=True)
class World:
    """What was drawn. `load` makes its requests anew, the same ones each time.

    Attributes:
        number: by which it is drawn.
        servers: their constants.
        rate: requests a second, on average.
        utilization: share of what the servers can do, roughly.
        adapters: 0 = the base model alone.
        prefixes: common beginnings of prompts; 0 = none.
        sheddable: share of requests.
        is_equal: whether all servers have the same constants.
        faults: how many stalls and crashes.
    """

    number: int
    servers: tuple[ServerModel, ...]
    rate: float
    utilization: float
    adapters: int
    prefixes: int
    sheddable: float
    is_equal: bool
    faults: int
    load: Callable[[], Load]


def draw_world(number: int, requests: int = REQUESTS) -> World:
    """Draw a world. The same number gives the same world in every process."""
    random = Random(f"world {number}")
    prompt_tokens, output_tokens = _log_uniform(random, 50, 4_000), _log_uniform(random, 20, 500)
    engine = _draw_engine(random, prompt_tokens + output_tokens)
    adapters = random.choice((0, 0, random.randint(2, 40))) if engine.slots else 0
    prefixes = random.choice((0, 0, random.randint(2, 100)))
    is_equal = random.random() < 0.7
    speeds = [1.0 if is_equal else random.choice((1.0, 1.0, 0.5, 0.7)) for _ in range(random.randint(2, 10))]
    servers = tuple(replace(engine, speed=speed) for speed in speeds)
    utilization = random.uniform(0.2, 1.1)
    one = _requests_a_second(engine, prompt_tokens, output_tokens)
    rate = utilization * one * sum(speeds)
    seconds = min(requests / rate, MAX_SECONDS)
    objective = max(random.uniform(3, 20) * engine.prefill_seconds(prompt_tokens, 0.0), 0.2)
    sheddable = random.choice((0.0, 0.0, random.uniform(0.2, 0.6)))
    burst = random.choice((0.0, 0.0, random.uniform(0.5, 2.0)))
    stalls_often = random.random() < 1 / 3
    crashes = _draw_crashes(random, len(servers), seconds)
    scrape_seconds, scrape_age = random.choice((0.05, 0.05, 0.2, 1.0)), random.choice((0.0, 0.0, 0.05, 0.3))

    def make() -> Load:
        chance = Random(f"requests {number}")
        stalls = _draw_stalls(chance, len(servers), seconds) if stalls_often else []
        pick_adapter, pick_prefix = Zipf(max(adapters, 1), 0.8), Zipf(max(prefixes, 1), 0.8)
        jobs: list[Job] = []
        for at in poisson(chance, lambda now: rate * _swell(now, burst, seconds), rate * (1 + burst), seconds):
            own = lognormal(chance, prompt_tokens, 0.7, 16 * int(prompt_tokens))
            shared = int(prompt_tokens) if prefixes else 0
            group = pick_prefix(chance)
            blocks = prompt(("p", group), shared, ("r", len(jobs)), own) if prefixes else NO_FINGERPRINT
            adapter = f"a{pick_adapter(chance)}" if adapters else None
            output = lognormal(chance, output_tokens, 0.7, 16 * int(output_tokens))
            priority = -1 if chance.random() < sheddable else 0
            jobs.append(Job(at, shared + own, output, objective, adapter, blocks, priority=priority))
        return Load(
            list(servers), seconds, jobs, crashes=list(crashes), stalls=list(stalls),
            scrape_seconds=scrape_seconds, scrape_age=scrape_age,
        )  # fmt: skip

    return World(
        number, servers, rate, utilization, adapters, prefixes, sheddable, is_equal, stalls_often + len(crashes), make
    )


def _draw_engine(random: Random, request_tokens: float) -> ServerModel:
    slots = random.choice((0, random.randint(2, 8)))
    chunked = random.random() < 0.5
    tells = (
        frozenset(field for field in sorted(TOLD_FIELDS) if random.random() < 0.9)
        if random.random() < 0.3
        else TOLD_FIELDS
    )
    admitted_share = random.uniform(0.7, 1.0)
    return ServerModel(
        # Room for 16 to 256 requests.
        cache_tokens=int(16 * request_tokens * _log_uniform(random, 1.0, 16.0)),
        fixed_prefill_seconds=_log_uniform(random, 0.005, 0.5),
        prefill_token_seconds=_log_uniform(random, 1e-5, 3e-4),
        min_prefill_seconds=0.0,
        fixed_decode_seconds=_log_uniform(random, 0.004, 0.06),
        sequence_seconds=_log_uniform(random, 1e-5, 1e-3),
        cached_token_seconds=_log_uniform(random, 1e-8, 1e-6),
        chunked=chunked,
        batch_tokens=random.choice((2_048, 8_192)),
        sequences=random.choice((16, 64, 256)),
        slots=slots,
        load_seconds=_log_uniform(random, 0.05, 1.5),
        admitted_share=admitted_share,
        told_share=random.choice((1.0, 1.0, admitted_share)),
        tells=tells,
        cold_seconds=random.choice((0.0, 0.0, random.uniform(1.0, 8.0))),
    )


def _requests_a_second(engine: ServerModel, prompt_tokens: float, output_tokens: float) -> float:
    """What one server can do, roughly: prompts and answers share its time."""
    held = prompt_tokens + output_tokens / 2
    sequences = max(min(engine.sequences, int(engine.admitted_share * engine.cache_tokens / held)), 1)
    step = engine.decode_seconds(sequences, int(sequences * held))
    # Prompts that come together share the fixed part of a step.
    batch = max(min(engine.batch_tokens / prompt_tokens, 4.0), 1.0)
    prefill = engine.prefill_token_seconds * prompt_tokens + engine.fixed_prefill_seconds / batch
    return 1 / (prefill + output_tokens * step / sequences)


def _swell(now: float, burst: float, seconds: float) -> float:
    """Bursts of a tenth of the time, five in a world."""
    return 1 + burst if burst and (5 * now / seconds) % 1 < 0.5 else 1.0


def _draw_stalls(random: Random, servers: int, seconds: float) -> list[Stall]:
    return [
        Stall(random.uniform(0, seconds), random.uniform(0.2, 5.0), random.randrange(servers))
        for _ in range(random.randint(1, 5))
    ]


def _draw_crashes(random: Random, servers: int, seconds: float) -> list[Crash]:
    if servers < 3 or random.random() < 0.7:
        return []
    at = random.uniform(0.3, 0.6) * seconds
    return [Crash(at, at + random.uniform(0.05, 0.3) * seconds, random.randrange(servers))]


def _log_uniform(random: Random, low: float, high: float) -> float:
    return exp(random.uniform(log(low), log(high)))
