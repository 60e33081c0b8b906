"""What a hostile upstream costs: this process's memory, and the streams beside it.

python -m bench.hostile [--seconds N] [--providers openai,bedrock]   one line of a table for each provider and each evil

One process reads the hostile upstream and, beside it, one good stream after another from a good one; the servers are
processes of their own. `alone` has no hostile upstream; a line is to be read against it. Pairs are p50 / p99.
"""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import statistics
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import structlog
import uvloop

from bench.child import Child, listen, say
from tests.fakes.plan import Fault, Plan
from tests.provider_matrix.case import MODEL, Case, cases
from tg_base.llm import LlmService
from tg_base.llm.guard import Clocks
from tg_flow.providers import open_provider
from tg_schema import TextCompletionRequest, TgError

EVILS = {
    "alone": None,
    "endless text": Fault.ENDLESS_TEXT,
    "endless text, streamed": Fault.ENDLESS_TEXT,
    "endless comments": Fault.ENDLESS_FILLER,
    "compressed comments": Fault.COMPRESSED,
    "endless 100 Continue": Fault.ENDLESS_CONTINUE,
}
NEIGHBOUR = TextCompletionRequest(prompt="hi", streaming=True)
TICK = 0.002
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass
class Figures:
    """Of one line: milliseconds of a neighbour's stream, of the loop's lateness and of its CPU in a turn, and MiB."""

    streams: list[float] = field(default_factory=list)
    lateness: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)


def resident() -> float:
    """MiB of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIB / 1024


async def serve(provider: str, nice: int) -> None:
    """In the child: the provider's loopback server, told its evil by lines; a `nice` one leaves the CPU to others."""
    os.nice(nice)
    logging.disable()
    case = next(case for case in cases() if case.provider == provider)
    async with case.wire() as wire:
        say(wire.url)
        while evil := await asyncio.to_thread(listen):
            fault = EVILS[evil]
            wire.play(Plan() if fault is None else Plan(fault=fault))
            say(evil)


async def opened(case: Case, url: str, clocks: Clocks) -> LlmService:
    """The provider, for a server at this URL."""
    os.environ.update(case.environment(url))
    options = {**case.options(url), "tries": 1, "clocks": {"first_token": clocks.first_token, "idle": clocks.idle}}
    return await open_provider(case.provider, MODEL, options)


async def ask(service: LlmService, request: TextCompletionRequest) -> None:
    """One answer, to its end."""
    async with aclosing(service.on_request(request)) as stream:
        async for _ in stream:
            pass


async def suffer(service: LlmService, evil: str, figures: Figures) -> None:
    """Ask the hostile upstream, again and again, and count how it ends."""
    request = TextCompletionRequest(prompt="hi", streaming="streamed" in evil)
    while True:
        try:
            await ask(service, request)
            kind = "ok"
        except TgError as error:
            kind = error.type
        figures.errors[kind] = figures.errors.get(kind, 0) + 1
        await asyncio.sleep(0.01)


async def tick(figures: Figures) -> None:
    """How late the loop is, and the CPU of its thread meanwhile, in which other processes do not count."""
    loop = asyncio.get_running_loop()
    while True:
        due, used = loop.time() + TICK, time.thread_time()
        await asyncio.sleep(TICK)
        figures.lateness.append(1000 * (loop.time() - due))
        figures.turns.append(1000 * (time.thread_time() - used))


async def watch(figures: Figures) -> None:
    """How large the process is."""
    while True:
        figures.resident.append(resident())
        await asyncio.sleep(0.5)


async def measured(hostile: LlmService | None, evil: str, good: LlmService, seconds: float) -> Figures:
    """One line."""
    gc.collect()
    figures = Figures()
    tasks = [asyncio.create_task(tick(figures)), asyncio.create_task(watch(figures))]
    if hostile is not None:
        tasks.append(asyncio.create_task(suffer(hostile, evil, figures)))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        await ask(good, NEIGHBOUR)
        figures.streams.append(1000 * (time.monotonic() - began))
        await asyncio.sleep(0.005)
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return figures


def line(provider: str, evil: str, figures: Figures) -> str:
    """One row of the table."""

    def quantiles(values: list[float]) -> str:
        return f"{statistics.median(values):.1f} / {statistics.quantiles(values, n=100)[98]:.1f}"

    half = len(figures.resident) // 2
    memory = f"{figures.resident[0]:.0f}, {max(figures.resident[:half]):.0f}, {max(figures.resident[half:]):.0f}"
    ends = ", ".join(f"{kind} {count}" for kind, count in figures.errors.items()) or "-"
    times = " | ".join(map(quantiles, (figures.streams, figures.lateness, figures.turns)))
    return f"| {provider} | {evil} | {times} | {memory} | {ends} |"


async def run(providers: list[str], evils: list[str], seconds: float) -> None:
    """All lines."""
    print("| upstream | evil | neighbours ms | loop late ms | CPU of a turn ms | MiB before, 1st, 2nd half | ends |")
    print("|---|---|---|---|---|---|---|")
    clocks = Clocks(first_token=5.0, idle=5.0)
    by_name = {case.provider: case for case in cases()}
    with Child("bench.hostile", "--serve", "openai") as good_child:
        good = await opened(by_name["openai"], good_child.hear(), Clocks())
        for provider in providers:
            with Child("bench.hostile", "--serve", provider, "--nice", "19") as child:
                hostile = await opened(by_name[provider], child.hear(), clocks)
                for evil in evils:
                    fault = EVILS[evil]
                    child.tell(evil)
                    child.hear()
                    await ask(good, NEIGHBOUR)
                    figures = await measured(hostile if fault else None, evil, good, seconds)
                    print(line(provider, evil, figures), flush=True)
                await hostile.aclose()
        await good.aclose()


def main() -> None:
    """Run, or be a server of the run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--providers", default="openai,anthropic,ollama,bedrock")
    parser.add_argument("--evils", default=",".join(EVILS).replace(", streamed", "; streamed"))
    parser.add_argument("--serve")
    parser.add_argument("--nice", type=int, default=0)
    told = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    if told.serve:
        asyncio.run(serve(told.serve, told.nice))
    else:
        evils = [evil.replace(";", ",") for evil in told.evils.split(",")]
        uvloop.run(run(told.providers.split(","), evils, told.seconds))


if __name__ == "__main__":
    main()
