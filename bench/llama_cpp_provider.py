"""The llama-cpp provider against `python -m llama_cpp.server`: the same model, prompts and sampling, in one run.

    python -m bench.llama_cpp_provider
    python -m bench.llama_cpp_provider --rounds 5 --seconds 10 --streams 1 4 16

Every stream asks again as soon as its answer has ended (at most 128 tokens, another seed each time); tokens of answers
that are not finished when the time is up count. The two subjects
take turns; each is driven by a process of its own, theirs over HTTP, ours through `LlmService.on_request`. What their
server needs besides the binding is installed into `.cache/bench`, not into the project's environment. A table goes to
standard error, one JSON object to standard output: medians over the rounds.
"""

import argparse
import asyncio
import itertools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import uvloop

from bench.child import Child, listen, own_cpu, say
from tg_llama.models import DEMO_MODEL
from tg_llama.options import LlamaCppOptions
from tg_llama.provider import LlamaCpp
from tg_schema import Sampling, TextCompletionRequest

SYSTEM = "You are a helpful assistant."
PROMPT = "Tell me a story about a fox."
TEMPERATURE = 0.8
MAX_TOKENS = 128
CONTEXT = 512

ROOT = Path(__file__).parents[1]
SERVER_PACKAGES = ROOT / ".cache" / "bench" / "llama-cpp-server"
SERVER_NEEDS = ("fastapi", "uvicorn", "sse-starlette", "starlette-context", "pydantic-settings")
THEIR_ENVIRONMENT = {"PYTHONPATH": str(SERVER_PACKAGES), "GOMP_SPINCOUNT": "300000"}
"""OpenMP's default: the engine's own, which this process has set for itself, makes another program's threads slower."""
START_SECONDS = 60.0


@dataclass
class Answers:
    """What the streams have got."""

    tokens: int = 0
    first_ms: list[float] = field(default_factory=list)


Ask = Callable[[int, Answers], Awaitable[None]]
"""Ask once, with a seed, and note when the first text came."""

Count = Callable[[Answers], int]
"""How many tokens have come so far."""


async def run(ask: Ask, count: Count, streams: int, seconds: float, seeds: Iterator[int]) -> dict[str, float]:
    """Keep `streams` streams busy for `seconds`."""
    answers = Answers()

    async def stream() -> None:
        while True:
            await ask(next(seeds), answers)

    before, started, cpu = count(answers), time.perf_counter(), own_cpu()
    tasks = [asyncio.create_task(stream()) for _ in range(streams)]
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    took, tokens = time.perf_counter() - started, count(answers) - before
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
    return {
        "tokens_per_second": round(tokens / took, 1),
        "first_token_ms": round(statistics.median(answers.first_ms or [0.0]), 2),
        "own_cpu_us_per_token": round((own_cpu() - cpu) / max(tokens, 1) * 1e6, 1),
    }


async def obey(ask: Ask, count: Count) -> None:
    """In a child: a run for each line, "streams seconds"."""
    seeds = itertools.count(1)
    await run(ask, count, 1, 0.5, seeds)
    say("ready")
    while line := await asyncio.to_thread(listen):
        streams, seconds = line.split()
        say(await run(ask, count, int(streams), float(seconds), seeds))


async def ours() -> None:
    """Role: the provider in this process, behind the base class that every request passes."""
    service = await LlamaCpp.open("tinydemo", LlamaCppOptions(context=CONTEXT))

    async def ask(seed: int, answers: Answers) -> None:
        started = time.perf_counter()
        first = True
        sampling = Sampling(temperature=TEMPERATURE, top_k=40, top_p=0.95, max_tokens=MAX_TOKENS, seed=seed)
        request = TextCompletionRequest(system=SYSTEM, prompt=PROMPT, streaming=True, sampling=sampling)
        async for record in service.on_request(request):
            if first and record.response:
                answers.first_ms.append((time.perf_counter() - started) * 1000)
                first = False

    await obey(ask, lambda _: service.engine.stats().generated_tokens)
    await service.aclose()


async def theirs(url: str) -> None:
    """Role: a client of their server."""
    body: dict[str, Any] = {
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}],
        "stream": True,
        "max_tokens": MAX_TOKENS,
        "temperature": TEMPERATURE,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.0,
        "repeat_penalty": 1.0,
    }
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(seed: int, answers: Answers) -> None:
            started = time.perf_counter()
            first = True
            async with session.post(f"{url}/v1/chat/completions", json=body | {"seed": seed}) as response:
                response.raise_for_status()
                async for line in response.content:
                    if b'"content"' not in line:
                        continue
                    if first:
                        answers.first_ms.append((time.perf_counter() - started) * 1000)
                        first = False
                    answers.tokens += 1

        await obey(ask, lambda answers: answers.tokens)


def install_server() -> None:
    """Fetch what their server needs; the binding itself is the one of this environment."""
    if not SERVER_PACKAGES.exists():
        uv = shutil.which("uv") or str(ROOT / ".cache" / "uv" / "bin" / "uv")
        command = [uv, "pip", "install", "-q", "--python", sys.executable, "--target", str(SERVER_PACKAGES)]
        subprocess.run([*command, *SERVER_NEEDS], check=True)


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Running(NamedTuple):
    """A server that is ready."""

    url: str
    pid: int


@contextmanager
def their_server(*more: str) -> Iterator[Running]:
    """Their server with more arguments, ready."""
    port = free_port()
    options = {"model": str(DEMO_MODEL), "n_ctx": str(CONTEXT), "host": "127.0.0.1", "port": str(port)}
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    arguments += ["--interrupt_requests", "False", "--verbose", "False", *more]
    with running([sys.executable, "-m", "llama_cpp.server", *arguments], port, THEIR_ENVIRONMENT) as theirs:
        yield theirs


@contextmanager
def running(command: list[str], port: int, environment: Mapping[str, str]) -> Iterator[Running]:
    """A server's process, with this beside our own environment, ready."""
    with subprocess.Popen(
        command,
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_for(port, process)
            yield Running(f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.kill()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until the server takes connections."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("a server did not start")


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Let the subjects take turns."""
    install_server()
    module = "bench.llama_cpp_provider"
    results: dict[str, dict[str, dict[str, float]]] = {}
    with (
        their_server() as server,
        Child(module, "--role", "ours") as our,
        Child(module, "--role", "theirs", "--url", server.url) as their,
    ):
        children = {"tokengrid": our, "llama_cpp.server": their}
        for child in children.values():
            child.hear()
        for streams in options.streams:
            runs: dict[str, list[dict[str, float]]] = {name: [] for name in children}
            for _ in range(options.rounds):
                for name, child in children.items():
                    child.tell(f"{streams} {options.seconds}")
                    runs[name].append(child.hear())
            results[str(streams)] = {name: medians(each) for name, each in runs.items()}
    return {"rounds": options.rounds, "seconds": options.seconds, "streams": results, "ratios": ratios(results)}


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """Of several runs, name by name."""
    return {name: round(statistics.median(each[name] for each in runs), 2) for name in runs[0]}


def ratios(results: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """How many times their tokens a second, and what part of their time to the first token."""
    table = {}
    for streams, subjects in results.items():
        our, their = subjects["tokengrid"], subjects["llama_cpp.server"]
        table[streams] = {
            "tokens_per_second": round(our["tokens_per_second"] / their["tokens_per_second"], 2),
            "first_token_ms": round(our["first_token_ms"] / their["first_token_ms"], 4),
        }
    return table


def show(report: dict[str, Any]) -> None:
    """The table, for people."""
    print(f"{'streams':>7}  {'subject':<17} {'tokens/s':>9} {'first token, ms':>16}", file=sys.stderr)
    for streams, subjects in report["streams"].items():
        for name, figures in subjects.items():
            rate, first = figures["tokens_per_second"], figures["first_token_ms"]
            print(f"{streams:>7}  {name:<17} {rate:>9.0f} {first:>16.1f}", file=sys.stderr)
        ratio = report["ratios"][streams]
        rate, first = ratio["tokens_per_second"], 1 / max(ratio["first_token_ms"], 1e-9)
        print(f"{'':>7}  {'ratio':<17} {rate:>8.1f}x {'1/' + format(first, '.0f'):>16}", file=sys.stderr)


def main() -> None:
    """Compare, or play the role that the comparison asks for."""
    parser = argparse.ArgumentParser(prog="bench.llama_cpp_provider", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--role", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "ours":
        uvloop.run(ours())
    elif options.role == "theirs":
        uvloop.run(theirs(options.url))
    else:
        report = compare(options)
        show(report)
        print(json.dumps(report))


if __name__ == "__main__":
    main()
