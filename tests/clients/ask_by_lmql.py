"""Runs in LMQL's own Python, with nothing of ours: its client and its query stack against an LMTP endpoint.

Arguments: the endpoint as `host:port/path`, the model's name, a file with its vocabulary. Prints one JSON object.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import tiktoken

ENDPOINT, MODEL, VOCABULARY = sys.argv[1:]
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def make_encoding() -> tiktoken.Encoding:
    """The model's own vocabulary, so that LMQL's tokenizer needs no download."""
    read = json.loads(Path(VOCABULARY).read_text())
    ranks = {text.encode("latin-1"): number for text, number in read["ranks"].items()}
    return tiktoken.Encoding("tokengrid", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=read["special"])


ENCODING = make_encoding()
_encoding_for_model = tiktoken.encoding_for_model
tiktoken.encoding_for_model = lambda name: ENCODING if name == MODEL else _encoding_for_model(name)

import lmql  # noqa: E402 - it asks tiktoken for its encodings
from lmql.models.lmtp.errors import LMTPStreamError  # noqa: E402
from lmql.models.lmtp.lmtp_client import LMTPWebSocketClient  # noqa: E402

Check = Callable[[], Awaitable[Any]]
STORY = ENCODING.encode("Once upon a time there was a")
LLM = lmql.model(MODEL, endpoint=ENDPOINT, tokenizer=MODEL)


async def collect(stream: Any) -> list[dict[str, Any]]:
    return [item async for item in stream]


async def with_client(use: Callable[[LMTPWebSocketClient], Awaitable[Any]], model: str = MODEL) -> Any:
    async with aiohttp.ClientSession() as session, session.ws_connect(f"http://{ENDPOINT}") as socket:
        client = LMTPWebSocketClient(model, socket)
        client.connect()
        return await asyncio.wait_for(use(client), 60)


async def model_info() -> Any:
    return await with_client(lambda client: client.request("MODEL_INFO", {"model": MODEL}))


async def generate() -> Any:
    return await with_client(lambda client: collect(client.generate(STORY, max_tokens=12, top_logprobs=3)))


async def generate_to_the_end() -> Any:
    return await with_client(lambda client: collect(client.generate(STORY, max_tokens=400)))


async def side_by_side() -> Any:
    async def use(client: LMTPWebSocketClient) -> Any:
        prompts = [ENCODING.encode(f"Count from {number}") for number in range(16)]
        together = await asyncio.gather(*(collect(client.generate(prompt, max_tokens=10)) for prompt in prompts))
        alone = [await collect(client.generate(prompt, max_tokens=10)) for prompt in prompts]
        return [[[item["token"] for item in stream] for stream in run] for run in (together, alone)]

    return await with_client(use)


async def score() -> Any:
    return await with_client(lambda client: collect(client.score(STORY[:4], STORY[4:])))


async def forced() -> Any:
    bias = {str(ENCODING.encode(" fox")[0]): 100}
    return await with_client(lambda client: collect(client.generate(STORY, max_tokens=3, logit_bias=bias)))


async def mask_beyond_the_vocabulary() -> Any:
    try:
        return await with_client(lambda client: collect(client.generate(STORY, logit_bias={"100000": 100})))
    except LMTPStreamError as error:
        return str(error)


async def unknown_model() -> Any:
    try:
        return await with_client(lambda client: collect(client.generate(STORY)), "nobody")
    except LMTPStreamError as error:
        return str(error)


async def whole_stack_generates() -> Any:
    return await LLM.generate("Once upon a time there was a", max_tokens=8)


async def whole_stack_scores() -> Any:
    scored = await LLM.score("Once upon a time there was a", [" fox", " zebra"])
    return [float(value) for value in scored.scores()]


async def query_with_a_choice() -> Any:
    return (await lmql.run('"The animal is a[ANIMAL]" where ANIMAL in [" fox", " cat", " owl"]', model=LLM))[
        0
    ].variables


async def query_with_a_number() -> Any:
    return (await lmql.run('"There are [NUMBER: int] foxes."', model=LLM))[0].variables


async def query_with_limits() -> Any:
    program = '"Once upon a time[TEXT]" where len(TOKENS(TEXT)) < 12 and STOPS_AT(TEXT, ".")'
    return (await lmql.run(program, model=LLM))[0].variables


async def query_that_samples() -> Any:
    program = 'sample(temperature=1.2) "Once upon a time[TEXT]" where len(TOKENS(TEXT)) < 8'
    return (await lmql.run(program, model=LLM))[0].variables


async def query_with_beams() -> Any:
    program = 'beam(n=2) "Once upon a time[TEXT]" where len(TOKENS(TEXT)) < 4'
    return [result.variables for result in await lmql.run(program, model=LLM)]


CHECKS: tuple[Check, ...] = (
    model_info,
    generate,
    generate_to_the_end,
    side_by_side,
    score,
    forced,
    mask_beyond_the_vocabulary,
    unknown_model,
    whole_stack_generates,
    whole_stack_scores,
    query_with_a_choice,
    query_with_a_number,
    query_with_limits,
    query_that_samples,
    query_with_beams,
)


async def main() -> dict[str, Any]:
    """What each check has seen."""
    seen: dict[str, Any] = {}
    for check in CHECKS:
        seen[check.__name__] = await asyncio.wait_for(check(), 60)
    return seen


print(json.dumps(asyncio.run(main())))
