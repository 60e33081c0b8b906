"""llama-cpp on models that people run: `tg-serve` against `python -m llama_cpp.server`, both over HTTP, by turns.

    python -m bench.llama_server                                  # 100 million parameters, 4 streams: three minutes
    python -m bench.llama_server --sizes 100m 500m --streams 1 4 16
    python -m bench.llama_server --long-tokens 0                  # without the long prompt
    python -m bench.llama_server --before ../before               # another checkout of ours as a third subject

Models of random weights are written for the run and removed (`bench.random_model`). Each run starts all streams at
once, each with a prompt of its own or after a beginning that all have (another one in each run, so that nothing is
remembered), and ends with the last of their tokens. Subjects take turns; a ratio is that of one round, so that what
else the machine does weighs on all alike. Then a long prompt comes beside three streams: how long do they wait for
their next tokens meanwhile? A table goes to standard error, one JSON object to standard output.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from bench.llama_cpp_provider import THEIR_ENVIRONMENT, free_port, install_server
from bench.random_model import SHAPES, write_random_model
from bench.subject import Subject, tokengrid, wait_ready
from tg_llama.models import DEMO_MODEL
from tg_llama.native.model import Model

OURS, THEIRS, BEFORE = "tokengrid", "llama_cpp.server", "before"
ANSWER_TOKENS = 64
OWN_TOKENS, COMMON_TOKENS, LONG_TOKENS = 24, 512, 3000
CONFIG = """
[models.random]
provider = "llama-cpp"

[models.random.options]
path = "{path}"
threads = {threads}
clocks = {{ first_token = 1800.0, idle = 1800.0 }}

[flows.default.text-completion]
model = "random"
"""
OTHERS = 3
"""Streams beside a long prompt."""
ALONE_TOKENS = 32
"""Tokens of these streams before it comes."""

Figures = dict[str, float]


class Served(NamedTuple):
    """A server that runs."""

    subject: Subject
    url: str


class Prompts:
    """Random text of the demo model's words, by number of tokens; never the same twice."""

    def __init__(self) -> None:
        model = Model(DEMO_MODEL)
        self._words = [piece.decode() for piece in model.pieces if piece[:1] == b" " and piece[1:].isalpha()]
        model.close()
        self._random = random.Random(1)

    def text(self, tokens: int) -> str:
        """One token for each word, or nearly so."""
        return "".join(self._random.choices(self._words, k=tokens)).strip()

    def several(self, count: int, *, common: bool) -> list[str]:
        """Prompts of one run."""
        beginning = self.text(COMMON_TOKENS) + " " if common else ""
        return [beginning + self.text(OWN_TOKENS) for _ in range(count)]


async def tokens_of(session: aiohttp.ClientSession, url: str, prompt: str, most: int) -> AsyncGenerator[float, None]:
    """The moments at which the pieces of one answer came; raises if it is not as long as asked."""
    body = {
        "model": "random",
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        "max_tokens": most,
        "temperature": 0.8,
        "top_p": 0.95,
        "seed": 1,
    }
    ended = ""
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            assert "choices" in event, event
            choice = event["choices"][0]
            ended = choice["finish_reason"] or ended
            if choice["delta"].get("content"):
                yield time.perf_counter()
    assert ended == "length", f"an answer ended by {ended or 'nothing'}"


async def burst(session: aiohttp.ClientSession, served: Served, prompts: list[str]) -> tuple[Figures, list[float]]:
    """All prompts at once: figures, and milliseconds to each first token."""
    started, cpu = time.perf_counter(), served.subject.cpu

    async def first(prompt: str) -> float:
        moments = [moment async for moment in tokens_of(session, served.url, prompt, ANSWER_TOKENS)]
        return (moments[0] - started) * 1000

    firsts = await asyncio.gather(*[first(prompt) for prompt in prompts])
    took, tokens = time.perf_counter() - started, len(prompts) * ANSWER_TOKENS
    figures = {"tokens_per_second": tokens / took, "cpu_ms_per_token": (served.subject.cpu - cpu) / tokens * 1000}
    return figures | {"first_ms_p50": statistics.median(firsts), "first_ms_p99": max(firsts)}, firsts


async def interrupted(session: aiohttp.ClientSession, served: Served, prompts: list[str], long: str) -> Figures:
    """A long prompt beside streams: milliseconds between their tokens before it came, and until its first token."""
    alone: list[float] = []
    beside: list[float] = []
    gaps, ready = alone, asyncio.Event()

    async def other(prompt: str) -> None:
        last = 0.0
        async with aclosing(tokens_of(session, served.url, prompt, LONG_TOKENS)) as moments:
            async for moment in moments:
                if last:
                    gaps.append((moment - last) * 1000)
                last = moment
                if len(alone) >= len(prompts) * ALONE_TOKENS:
                    ready.set()

    others = [asyncio.create_task(other(prompt)) for prompt in prompts]
    await ready.wait()
    del alone[: len(alone) // 2]  # the first ones waited for the others' prompts
    gaps, started = beside, time.perf_counter()
    async for moment in tokens_of(session, served.url, long, 1):
        took = moment - started
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    return {
        "gap_alone_ms_p50": statistics.median(alone),
        "gap_ms_p50": statistics.median(beside),
        "gap_ms_p99": sorted(beside)[int(len(beside) * 0.99)],
        "gap_ms_max": max(beside),
        "long_first_s": took,
    }


def serve(stack: ExitStack, folder: Path, model: Path, threads: int, before: Path | None) -> dict[str, Served]:
    """All subjects, ready."""
    config = folder / "tokengrid.toml"
    config.write_text(CONFIG.format(path=model, threads=threads), "utf-8")
    ours = ["--config", str(config)]
    theirs = ["--model", str(model), "--n_ctx", "4096", "--interrupt_requests", "False", "--verbose", "False"]
    # Their default is logits for all tokens of a prompt, without flash attention: this is faster.
    theirs += [
        "--n_threads",
        str(threads),
        "--n_threads_batch",
        str(threads),
        "--logits_all",
        "False",
        "--flash_attn",
        "True",
    ]
    commands = {OURS: tokengrid(*ours), THEIRS: [sys.executable, "-m", "llama_cpp.server", *theirs]}
    if before is not None:
        commands[BEFORE] = [str(before / ".venv/bin/tg-serve"), *ours]
    served = {}
    for name, command in commands.items():
        port = free_port()
        environment = THEIR_ENVIRONMENT if name == THEIRS else {}
        subject = Subject(name, [*command, "--port", str(port)], folder / f"{name}.log", environment, quiet=True)
        served[name] = Served(stack.enter_context(subject), f"http://127.0.0.1:{port}")
        wait_ready(served[name].url, "/v1/models" if name == THEIRS else "/ready")
    return served


async def compare(served: dict[str, Served], options: argparse.Namespace) -> dict[str, Any]:
    """Let the subjects take turns, at each load."""
    prompts, report = Prompts(), {}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        for each in served.values():
            await burst(session, each, prompts.several(1, common=False))  # memory that is touched first
        for streams in options.streams:
            for common in (False, True):
                runs: dict[str, list[Figures]] = {name: [] for name in served}
                firsts: dict[str, list[float]] = {name: [] for name in served}
                for number in range(options.rounds):
                    asked = prompts.several(streams, common=common)
                    for name in sorted(served, reverse=bool(number % 2)):
                        figures, waited = await burst(session, served[name], asked)
                        runs[name].append(figures)
                        firsts[name] += waited
                name = f"{streams} streams" + (f", {COMMON_TOKENS} tokens in common" if common else "")
                report[name] = told(runs, firsts)
                show(name, report[name])
        if options.long_tokens:
            name = f"a prompt of {options.long_tokens} tokens beside {OTHERS} streams"
            report[name] = await beside(session, served, prompts, options)
            show(name, report[name])
    return report


async def beside(
    session: aiohttp.ClientSession, served: dict[str, Served], prompts: Prompts, options: argparse.Namespace
) -> dict[str, Figures]:
    """The same for a long prompt, without their server, which has one request at a time."""
    runs: dict[str, list[Figures]] = {name: [] for name in served if name != THEIRS}
    for _ in range(options.rounds):
        others, long = prompts.several(OTHERS, common=False), prompts.text(options.long_tokens)
        for name, each in runs.items():
            each.append(await interrupted(session, served[name], others, long))
    return {name: medians(each) for name, each in runs.items()}


def told(runs: dict[str, list[Figures]], firsts: dict[str, list[float]]) -> dict[str, Figures]:
    """Medians, and ours by each other subject's; the 99th percentile is that of all rounds' first tokens."""
    table = {name: medians(each) for name, each in runs.items()}
    for name, each in firsts.items():
        table[name]["first_ms_p99"] = round(sorted(each)[int(len(each) * 0.99)], 1)
    for other in runs.keys() - {OURS}:
        pairs = list(zip(runs[OURS], runs[other], strict=True))
        table[f"by {other}"] = {
            field: round(statistics.median(our[field] / their[field] for our, their in pairs), 3)
            for field in runs[OURS][0]
        }
    return table


def medians(runs: list[Figures]) -> Figures:
    """Of several runs, field by field."""
    return {field: round(statistics.median(run[field] for run in runs), 2) for field in runs[0]}


def show(name: str, rows: dict[str, Figures]) -> None:
    """A table for people, as soon as it is known."""
    print(f"\n{name}", file=sys.stderr)
    for subject, figures in rows.items():
        cells = "  ".join(f"{field} {value:g}" for field, value in figures.items())
        print(f"  {subject:<20} {cells}", file=sys.stderr)


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(prog="bench.llama_server", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=SHAPES, default=["100m"])
    parser.add_argument("--streams", nargs="+", type=int, default=[4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of each server")
    parser.add_argument("--long-tokens", type=int, default=LONG_TOKENS, help="of the prompt beside streams; 0 = none")
    parser.add_argument("--before", type=Path, help="another checkout, with its own .venv")
    options = parser.parse_args()
    install_server()
    report = {}
    for size in options.sizes:
        with tempfile.TemporaryDirectory(prefix="tokengrid-llama-") as folder, ExitStack() as stack:
            model = Path(folder) / "random.gguf"
            write_random_model(model, SHAPES[size])
            served = serve(stack, Path(folder), model, options.threads, options.before)
            print(f"\n{size}, {model.stat().st_size / 1e6:.0f} MB", file=sys.stderr)
            report[size] = asyncio.run(compare(served, options))
    print(json.dumps({"rounds": options.rounds, "sizes": report}))


if __name__ == "__main__":
    main()
