"""1,000 vectors of 64 tokens each over HTTP: `tg-serve` against `python -m llama_cpp.server`, by turns in one run.

    python -m bench.embeddings
    python -m bench.embeddings --rounds 5 --texts 1000 --lists 100 --side-by-side 1

Both serve the demo model on `POST /v1/embeddings`, with lists of texts as `input`. Its file is a copy that says how
vectors are pooled: else their server would send one for each token. Each round asks both for all texts; a ratio is that
of one round, so that what else the machine does weighs on both. A JSON object on standard output.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from bench.llama_cpp_provider import free_port, install_server, running, their_server
from tests.fakes.gguf_file import copy_with
from tg_flow.llama.model import Model
from tg_flow.llama.model_file import DEMO_MODEL

TOKENS = 64
"""Tokens of a text, without the one that the model wants before it."""

THEIRS = ("--embedding", "True", "--n_threads_batch", "1")
"""One thread, as each of our engines has: two that wait for each other collapse on a machine that does other work."""

MODEL = "tinydemo"

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


async def ask(session: aiohttp.ClientSession, url: str, lists: list[list[str]], most: int) -> list[float]:
    """Seconds for all lists, `most` of them at a time; and the first number of the first and the last vector."""
    free, body = asyncio.Semaphore(most), {"model": MODEL}

    async def embed(texts: list[str]) -> list[Any]:
        async with free, session.post(f"{url}/v1/embeddings", json=body | {"input": texts}) as response:
            response.raise_for_status()
            return list(json.loads(await response.read())["data"])

    started = time.perf_counter()
    found = await asyncio.gather(*[embed(texts) for texts in lists])
    took = time.perf_counter() - started
    assert [len(each) for each in found] == [len(texts) for texts in lists]
    return [took, found[0][0]["embedding"][0], found[-1][-1]["embedding"][0]]


async def compare(options: argparse.Namespace, ours: str, theirs: str) -> dict[str, Any]:
    """Let the servers take turns."""
    texts = make_texts(options.texts)
    lists = [texts[start : start + options.lists] for start in range(0, len(texts), options.lists)]
    seconds: dict[str, list[float]] = {"tokengrid": [], "llama_cpp.server": []}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for _ in range(options.rounds + 1):
            for name, url in (("tokengrid", ours), ("llama_cpp.server", theirs)):
                took, *_ = await ask(session, url, lists, options.side_by_side)
                seconds[name].append(took)
    kept = {name: times[1:] for name, times in seconds.items()}  # the first round allocates
    ratios = [their / our for our, their in zip(kept["tokengrid"], kept["llama_cpp.server"], strict=True)]
    return {
        "texts": len(texts),
        "seconds": {name: round(statistics.median(times), 3) for name, times in kept.items()},
        "times_as_fast": round(statistics.median(ratios), 2),
        "rounds": [round(ratio, 2) for ratio in ratios],
    }


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
        with running(command, port) as ours, their_server("--model", path, *THEIRS) as theirs:
            print(json.dumps(asyncio.run(compare(options, ours, theirs))))


if __name__ == "__main__":
    main()
