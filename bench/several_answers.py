"""What several answers to one prompt cost beside one, on the demo model: paired ratios in one process.

    python -m bench.several_answers
    python -m bench.several_answers --answers 4 --engines 1
    python -m bench.several_answers --prompt-tokens 64,128,256,384

Answers of 96 tokens, by turns; each ratio is that of two requests one after the other. The prompt is short and the
same, so that the model remembers it: what is measured is the answers alone. With `--prompt-tokens` each request has a
prompt of its own, of that many tokens, which is evaluated once. The last ratios are llama.cpp's steps alone, without
anything of ours: that many rows shared by as many contexts as there are engines, which run side by side, beside one row
in one context. A JSON object on standard output for each length of a prompt: medians.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.child import own_cpu
from tg_llama.native.context import Context
from tg_llama.native.model import Model
from tg_llama.options import LlamaCppOptions
from tg_llama.provider import LlamaCpp
from tg_schema import Sampling, TextCompletionRequest

TOKENS = 96
WARM = 20
"""Pairs of requests before those that are measured."""
FLOORS = 9
"""Pairs of bare runs."""


REMEMBERED_PROMPT = "Tell me a story about a fox."
WORD_IDS = range(300, 2_000)
"""Token ids of the demo model that are pieces of text."""


async def ask(service: LlamaCpp, answers: int, seed: int, prompt_tokens: int) -> tuple[float, float]:
    """Seconds by the clock and of CPU for a request; with 0 prompt tokens, of the prompt that is remembered."""
    sampling = Sampling(n=answers, seed=seed, max_tokens=TOKENS, ignore_eos=True)
    request = TextCompletionRequest(prompt=REMEMBERED_PROMPT, streaming=True, sampling=sampling)
    if prompt_tokens:
        # Random(n) of neighbours differ from the first number on, so that no prompt begins like another one.
        ids = tuple(random.Random(2 * seed + (answers > 1)).choices(WORD_IDS, k=prompt_tokens))
        request = TextCompletionRequest(prompt_ids=ids, streaming=True, sampling=sampling)
    started, cpu = time.perf_counter(), own_cpu()
    async for _ in service.on_request(request):
        pass
    return time.perf_counter() - started, own_cpu() - cpu


async def compare(answers: int, engines: int, pairs: int, prompt_tokens: int) -> dict[str, Any]:
    """The ratios of requests, and those of bare steps."""
    service = await LlamaCpp.open("tinydemo", LlamaCppOptions(engines=engines))
    clock, cpu = [], []
    for seed in range(WARM + pairs):
        one, several = [await ask(service, count, seed, prompt_tokens) for count in (1, answers)]
        if seed >= WARM:
            clock.append(several[0] / one[0])
            cpu.append(several[1] / one[1])
    model = service.engine.model
    floors = [floor(model, answers, engines) for _ in range(FLOORS)]
    await service.aclose()
    ratios = {
        "clock": statistics.median(clock),
        "cpu": statistics.median(cpu),
        "llama_decode alone, clock": statistics.median(took for took, _ in floors),
        "llama_decode alone, cpu": statistics.median(spent for _, spent in floors),
    }
    subject = {"answers": answers, "engines": engines, "prompt_tokens": prompt_tokens}
    return {**subject, **{name: round(ratio, 2) for name, ratio in ratios.items()}}


def floor(model: Model, answers: int, engines: int) -> tuple[float, float]:
    """The seconds of these rows in all engines by those of one row: by the clock and of CPU."""
    rows = [answers // engines + (number < answers % engines) for number in range(min(engines, answers))]
    (one, one_cpu), (several, several_cpu) = decode_seconds(model, [1]), decode_seconds(model, rows)
    return several / one, several_cpu / one_cpu


def decode_seconds(model: Model, rows: list[int]) -> tuple[float, float]:
    """Seconds for `TOKENS` steps in contexts of that number of sequences, side by side: by the clock and of CPU."""
    contexts = [Context(model, sequences=16, tokens=512, batch=512, threads=1) for _ in rows]

    def decode(context: Context, count: int, first: int) -> None:
        for position in range(first, first + TOKENS):
            context.decode([5 + position] * count, [position] * count, list(range(count)), [1] * count)

    with ThreadPoolExecutor(len(rows)) as threads:
        list(threads.map(decode, contexts, rows, [0] * len(rows)))  # the first steps allocate
        started, cpu = time.perf_counter(), own_cpu()
        list(threads.map(decode, contexts, rows, [TOKENS] * len(rows)))
        took = time.perf_counter() - started, own_cpu() - cpu
    for context in contexts:
        context.close()
    return took


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(prog="bench.several_answers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--answers", type=int, default=4)
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--prompt-tokens", default="0", help="lengths, by commas; 0 = short and remembered")
    options = parser.parse_args()
    for length in map(int, options.prompt_tokens.split(",")):
        print(json.dumps(asyncio.run(compare(options.answers, options.engines, options.pairs, length))), flush=True)


if __name__ == "__main__":
    main()
