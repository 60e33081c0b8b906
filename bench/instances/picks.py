"""What a pick costs: processor time of one call, for a pool of 100 servers with 50 adapters."""

import json
import time
from collections.abc import Callable
from random import Random

import msgspec

from bench.instances.baselines.policies import ALL_POLICIES, make_policy
from tg_picker.core import (
    AdapterReport,
    Endpoint,
    Fingerprint,
    InstanceRequest,
    InstanceUsage,
    LoadReport,
    Objective,
    Pick,
    Placement,
    Scheduler,
    fingerprint_text,
    fingerprint_tokens,
)
from tg_picker.pools import PromptFields, read_prompt

SERVERS, ADAPTERS, SLOTS = 100, 50, 8
PICKS = 4_000
IN_FLIGHT = 2_000
PREFIX_BLOCKS = 30
PROMPT_TOKENS = 100_000


def measure_picks() -> str:
    """A line for each policy, and one for fingerprints."""
    lines = [f"{name}: {_describe(measure_policy(name))}" for name in ALL_POLICIES]
    return "\n".join([*lines, _measure_fingerprints()])


def _describe(ordered: list[int]) -> str:
    return f"p50 {ordered[len(ordered) // 2] / 1000:.0f} us, p99 {ordered[int(0.99 * len(ordered))] / 1000:.0f} us"


def measure_policy(policy: str, picks: int = PICKS) -> list[int]:
    """Nanoseconds of the processor for each pick but the first quarter, the shortest first."""
    random = Random(0)
    endpoints = tuple(Endpoint(f"10.0.0.{index}:8000", f"s{index}") for index in range(SERVERS))
    scheduler = Scheduler(make_policy(policy), random=random)
    placements: list[Placement] = []
    costs = []
    for number in range(picks):
        now = number / 1000
        if number % 50 == 0:
            _report(scheduler, endpoints, random, now)
        request = _request(random)
        began = time.process_time_ns()
        made = scheduler.pick(request, endpoints, now)
        costs.append(time.process_time_ns() - began)
        if isinstance(made, Pick):
            placements.append(made.placement)
        if len(placements) > IN_FLIGHT:
            _end(placements.pop(random.randrange(len(placements))), now)
    return sorted(costs[picks // 4 :])


def _end(placement: Placement, now: float) -> None:
    placement.first_token(now)
    placement.finish(InstanceUsage(output_tokens=100), now + 1)


def _request(random: Random) -> InstanceRequest:
    group = random.randrange(200)
    blocks = tuple(range(100 * group, 100 * group + random.randrange(PREFIX_BLOCKS)))
    adapter = f"a{int(ADAPTERS * random.random() ** 2)}"
    return InstanceRequest("base", adapter, 64 * PREFIX_BLOCKS, Fingerprint(blocks), 0, Objective(first_token=1.0))


def _report(scheduler: Scheduler, endpoints: tuple[Endpoint, ...], random: Random, now: float) -> None:
    for endpoint in endpoints:
        resident = [f"a{random.randrange(ADAPTERS)}" for _ in range(SLOTS)]
        adapters = AdapterReport(SLOTS, frozenset(resident[:4]), frozenset(), dict.fromkeys(resident, "gpu"))
        scheduler.observe(
            endpoint,
            LoadReport(
                now,
                queued=random.randrange(5),
                running=random.randrange(50),
                kv_usage=random.random(),
                blocks=18_750,
                block_tokens=16,
                adapters=adapters,
            ),
        )


def _measure_fingerprints() -> str:
    tokens, text = list(range(PROMPT_TOKENS)), "word " * (4 * PROMPT_TOKENS // 5)
    ids = min(_milliseconds(lambda: fingerprint_tokens(tokens)) for _ in range(9))
    words = min(_milliseconds(lambda: fingerprint_text(text)) for _ in range(9))
    body = json.dumps({"messages": _history()}).encode()
    whole = min(_milliseconds(lambda: fingerprint_text(_prompt_of(body))) for _ in range(9))
    return (
        f"fingerprint of {PROMPT_TOKENS:,} tokens: {ids:.1f} ms of ids, {words:.1f} ms of text, "
        f"{whole:.1f} ms of the body with an agent's history, parsed and read"
    )


def _prompt_of(body: bytes) -> str:
    return read_prompt(msgspec.json.decode(body, type=PromptFields)).text


def _history() -> list[dict[str, object]]:
    """Calls of a tool and what they brought, a kilotoken each: code, so that many characters are escaped in JSON."""
    code = 'if request.model == "llama":\n    return servers[0]\n' * 80
    turns: list[dict[str, object]] = []
    for number in range(4 * PROMPT_TOKENS // len(code)):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"src/{number}.py", "lines": 80})}
        turns.append({"role": "assistant", "content": None, "tool_calls": [{"id": f"{number}", "function": function}]})
        turns.append({"role": "tool", "tool_call_id": f"{number}", "content": code})
    return turns


def _milliseconds(act: Callable[[], object]) -> float:
    began = time.process_time_ns()
    act()
    return (time.process_time_ns() - began) / 1e6
