"""One dynamic batch of LMI's door beside as many streams of the same texts, in turn: seconds, and CPU of the server.

    python -m bench.batch                      64 texts, 15 pairs (half a minute)
    python -m bench.batch --texts 256

Embedded: one `tg-serve` on the memory bus before the fake provider, whose pieces come as fast as they are taken. Each
pair asks both, in changing order, and the ratios are those of a pair. A batch should take at most 1.2 times as long.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, TCPConnector

from bench.pipeline import CONFIGURATION, ENVIRONMENT, free_port, provider
from bench.subject import Subject, tokengrid, wait_ready

TEXT = "chunks=32 gap=0"
Ask = Callable[[ClientSession, int], Awaitable[None]]


async def ask_batch(http: ClientSession, texts: int) -> None:
    """One whole answer for all."""
    async with http.post("/invocations", json={"inputs": [TEXT] * texts}) as response:
        answers = await response.json()
    assert len(answers) == texts
    assert all(answer["generated_text"].startswith("0:") for answer in answers), answers[:2]


async def ask_batch_lines(http: ClientSession, texts: int) -> None:
    """One stream for all."""
    async with http.post("/invocations", json={"inputs": [TEXT] * texts, "stream": True}) as response:
        assert (await response.read()).count(b"\n") >= texts


async def ask_streams(http: ClientSession, texts: int) -> None:
    """A stream for each."""

    async def ask() -> None:
        async with http.post("/invocations", json={"inputs": TEXT, "stream": True}) as response:
            assert b'"generated_text":"0:' in await response.read()

    await asyncio.gather(*[ask() for _ in range(texts)])


async def measure(url: str, subject: Subject, texts: int, pairs: int) -> dict[str, list[tuple[float, float]]]:
    """By the batch's form: the ratio of seconds, and of CPU, of each pair."""
    forms: dict[str, Ask] = {"whole": ask_batch, "lines": ask_batch_lines}
    ratios: dict[str, list[tuple[float, float]]] = {form: [] for form in forms}
    async with ClientSession(url, connector=TCPConnector(limit=0)) as http:

        async def clock(ask: Ask) -> tuple[float, float]:
            cpu, started = subject.cpu, time.perf_counter()
            await ask(http, texts)
            return time.perf_counter() - started, subject.cpu - cpu

        for warm in (ask_streams, *forms.values()):
            await warm(http, texts)
        for number in range(pairs):
            for form, ask in forms.items():
                asks = (ask, ask_streams) if number % 2 else (ask_streams, ask)
                took = {each: await clock(each) for each in asks}
                seconds, cpu = (took[ask][each] / max(took[ask_streams][each], 1e-3) for each in (0, 1))
                ratios[form].append((seconds, cpu))
    return ratios


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=15)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokengrid-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        fake = stack.enter_context(provider(folder))
        config, port = folder / "bench.toml", free_port()
        config.write_text(_configure(fake, args.texts), "utf-8")
        url = f"http://127.0.0.1:{port}"
        command = tokengrid("--config", str(config), "--bus", "memory://", "--port", str(port))
        subject = stack.enter_context(Subject("tg-serve", command, folder / "serve.log", ENVIRONMENT))
        wait_ready(url)
        ratios: dict[str, Any] = asyncio.run(measure(url, subject, args.texts, args.pairs))
    print("| batch of LMI's door beside as many streams | seconds | CPU |\n|---|---|---|")
    for form, pairs in ratios.items():
        seconds, cpu = (statistics.median(pair[place] for pair in pairs) for place in (0, 1))
        print(f"| {args.texts} texts, {form} | {seconds:.2f} | {cpu:.2f} |")


def _configure(fake: str, texts: int) -> str:
    """All texts run side by side."""
    return CONFIGURATION.format(provider=fake).replace('"BENCH_KEY" }', f'"BENCH_KEY", capacity = {texts} }}')


if __name__ == "__main__":
    main()
