"""1,000 vectors of 64 tokens each over HTTP: `tg-serve` against `python -m llama_cpp.server`, by turns in one run.

    python -m bench.embeddings
    python -m bench.embeddings --rounds 5 --texts 1000 --lists 100 --side-by-side 1

Both serve the demo model on `POST /v1/embeddings`, with lists of texts as `input`. Its file is a copy that says how
vectors are pooled: else their server would send one for each token. Each round asks both for all texts; a ratio is that
of one round, so that what else the machine does weighs on both. The floor, in the same rounds, is llama.cpp alone in
this process: the same tokens in as many contexts, each with a thread, without pooling, HTTP or anything else of ours.
CPU is that of the process, in microseconds for a token: other work disturbs it less than the clock. A JSON object on
standard output.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp

from bench.child import cpu_of, own_cpu
from bench.llama_cpp_provider import Running, free_port, install_server, running, their_server
from tests.fakes.gguf_file import copy_with
from tg_llama.models import DEMO_MODEL
from tg_llama.native.context import VectorContext
from tg_llama.native.model import Model
from tg_llama.options import LlamaCppOptions

TOKENS = 64
"""Tokens of a text, without the one that the model wants before it."""

THEIRS = ("--embedding", "True", "--n_threads_batch", "1")
"""One thread, as each of our engines has: two that wait for each other collapse on a machine that does other work."""

MODEL = "tinydemo"

OURS, FLOOR = "tokengrid", "llama.cpp alone"

MEAN = 1
"""`LLAMA_POOLING_TYPE_MEAN` in llama.h."""

SENTENCE = "Anna read a story about a fox, number {number}, and told it to her friends in the garden. "


def make_texts(count: int) -> list[str]:
    """Different texts of `TOKENS` tokens each."""
    model, texts = Model(DEMO_MODEL), []
    for number in range(10_000, 10_000 + 10 * count):
        ids = model.tokenize(SENTENCE.format(number=number) * 8, special=False)[:TOKENS]
        text = b"".join([model.pieces[token] for token in ids]).decode()
        if len(model.tokenize(text, special=False)) == TOKENS:
            texts.append(text)
        if len(texts) == count:
            break
    model.close()
    return texts


class Floor:
    """llama.cpp alone, as many contexts as we have engines."""

    def __init__(self, texts: list[str]) -> None:
        self._model = Model(DEMO_MODEL)
        self._texts = [self._model.tokenize(text, special=False, ends=True) for text in texts]
        self.tokens = sum(map(len, self._texts))
        sizes = LlamaCppOptions().sizes(self._model.context_length, self._model.size)
        self._contexts = [VectorContext(self._model, sizes) for _ in range(sizes.engines)]

    def run(self) -> tuple[float, float]:
        """Seconds for all texts by the clock and of CPU."""
        started, cpu = time.perf_counter(), own_cpu()
        with ThreadPoolExecutor() as threads:
            list(threads.map(self._evaluate, self._contexts, range(len(self._contexts))))
        return time.perf_counter() - started, own_cpu() - cpu

    def _evaluate(self, context: VectorContext, first: int) -> None:
        texts = self._texts[first :: len(self._contexts)]
        at_once = context.rows // max(map(len, texts))
        for start in range(0, len(texts), at_once):
            part = texts[start : start + at_once]
            assert context.evaluate([(number, 0, ids) for number, ids in enumerate(part)]) is not None
            for number in range(len(part)):
                context.forget(number)


async def ask(
    session: aiohttp.ClientSession, served: Running, lists: list[list[str]], most: int
) -> tuple[float, float]:
    """Seconds for all lists, `most` of them at a time, by the clock and of the server's CPU."""
    free, body = asyncio.Semaphore(most), {"model": MODEL}

    async def embed(texts: list[str]) -> int:
        async with free, session.post(f"{served.url}/v1/embeddings", json=body | {"input": texts}) as response:
            response.raise_for_status()
            return len(json.loads(await response.read())["data"])

    started, cpu = time.perf_counter(), cpu_of(served.pid) or 0.0
    found = await asyncio.gather(*[embed(texts) for texts in lists])
    took = time.perf_counter() - started, (cpu_of(served.pid) or 0.0) - cpu
    assert found == [len(texts) for texts in lists]
    return took


async def compare(options: argparse.Namespace, servers: dict[str, Running]) -> dict[str, Any]:
    """Let the servers and the floor take turns."""
    texts = make_texts(options.texts)
    lists = [texts[start : start + options.lists] for start in range(0, len(texts), options.lists)]
    floor = Floor(texts)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in (*servers, FLOOR)}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for _ in range(options.rounds + 1):
            for name, served in servers.items():
                taken[name].append(await ask(session, served, lists, options.side_by_side))
            taken[FLOOR].append(await asyncio.to_thread(floor.run))
    kept = {name: rounds[1:] for name, rounds in taken.items()}  # the first round allocates
    report: dict[str, Any] = {"texts": len(texts), "tokens": floor.tokens}
    for name, rounds in kept.items():
        ratios = [their / our for (our, _), (their, _) in zip(kept[OURS], rounds, strict=True)]
        report[name] = {
            "seconds": round(statistics.median(took for took, _ in rounds), 3),
            "cpu_us_a_token": round(statistics.median(cpu for _, cpu in rounds) / floor.tokens * 1e6, 1),
            "seconds_by_ours": round(statistics.median(ratios), 2),
            "rounds": [round(ratio, 2) for ratio in ratios],
        }
    return report


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(prog="bench.embeddings", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--lists", type=int, default=100, help="texts of one request")
    parser.add_argument("--side-by-side", type=int, default=1, help="requests at a time")
    options = parser.parse_args()
    install_server()
    port = free_port()
    serve = str(Path(sys.executable).with_name("tg-serve"))
    with tempfile.TemporaryDirectory() as folder:
        path = str(copy_with(DEMO_MODEL, Path(folder) / f"{MODEL}.gguf", {"llama.pooling_type": MEAN}))
        command = [serve, "--port", str(port), "--model", path]
        with running(command, port, {}) as ours, their_server("--model", path, *THEIRS) as theirs:
            print(json.dumps(asyncio.run(compare(options, {OURS: ours, "llama_cpp.server": theirs}))))


if __name__ == "__main__":
    main()
