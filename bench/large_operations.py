"""The longest time for which a request of 10 MB holds up the event loop where no SDK makes it: llama-cpp, and counts.

    python -m bench.large_operations                medians of three (about three minutes)

As `bench.large_bodies`, with the demo model on llama-cpp, in worker processes alone. Most of these requests are refused
by the model, whose context is short: what is measured is how they are read, checked and refused. The last rows are
messages of a WebSocket, of which two are as large as it takes.
"""

import argparse
import asyncio
import json
import statistics
from array import array
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import structlog
import uvloop

from bench.large_bodies import SIZE_BYTES, Pipeline, Probe, text, turns

IDS = SIZE_BYTES // 5
"""Token ids of 10 MB."""
MIB = 1024 * 1024


def many(size: int, count: int) -> list[str]:
    """Texts of 10 MB."""
    return [text(size)] * count


POSTS: Mapping[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "chat, one text": ("/v1/chat/completions", lambda: {"messages": [{"role": "user", "content": text(SIZE_BYTES)}]}),
    "chat, 30,000 messages": ("/v1/chat/completions", lambda: {"messages": turns(30_000)}),
    "chat, a schema": ("/v1/chat/completions", lambda: {"messages": turns(1), "response_format": schema()}),
    "completion, one prompt": ("/v1/completions", lambda: {"prompt": text(SIZE_BYTES)}),
    "completion, token ids": ("/v1/completions", lambda: {"prompt": [100] * IDS}),
    "count_tokens, 30,000 messages": ("/v1/messages/count_tokens", lambda: {"messages": turns(30_000)}),
    "input_tokens, 30,000 messages": ("/v1/responses/input_tokens", lambda: {"input": turns(30_000)}),
    "tokenize, one text": ("/tokenize", lambda: {"prompt": text(SIZE_BYTES)}),
    "detokenize": ("/detokenize", lambda: {"tokens": [100] * IDS}),
    "embeddings, 2,000 texts": ("/v1/embeddings", lambda: {"input": many(5000, 2000)}),
    "embeddings, token ids": ("/v1/embeddings", lambda: {"input": [[100] * 1000] * (IDS // 1000)}),
    "rerank, 2,000 texts": ("/rerank", lambda: {"query": "q", "documents": many(5000, 2000)}),
}
"""Path, and body without its model."""


def schema() -> dict[str, Any]:
    """As `response_format`."""
    field = {"type": "string", "description": text(180)}
    properties = {f"field_{number}": field for number in range(SIZE_BYTES // 250)}
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": properties}}}


def generate_message(mask: object) -> str:
    """A message of LMTP with this mask."""
    return "GENERATE " + json.dumps({"stream_id": 1, "model": "m", "prompt": [1], "max_tokens": 1, "logit_bias": mask})


def mask_of(entries: int) -> dict[str, int]:
    """About 17 bytes each."""
    return {str(number): -100 for number in range(entries)}


def floats() -> str:
    """A mask of 160,000 tokens."""
    return b64encode(array("f", [-100.0] * 160_000).tobytes()).decode()


def response_message() -> str:
    """A `response.create` of 1 MiB."""
    items = [{"role": "user", "content": "x" * 40} for _ in range(MIB // 80)]
    return json.dumps({"type": "response.create", "model": "m", "input": items})


MESSAGES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "LMTP, a mask of 4 MiB": ("/lmtp", lambda: generate_message(mask_of(4 * MIB // 17))),
    "LMTP, a mask of 1 MiB": ("/lmtp", lambda: generate_message(mask_of(MIB // 17))),
    "LMTP, 160,000 floats": ("/lmtp", lambda: generate_message(floats())),
    "Responses, 1 MiB": ("/v1/responses", response_message),
}
"""Path, and message."""


async def measure(kinds: list[str]) -> list[float]:
    """The longest hold of each, in milliseconds."""
    holds = []
    async with Pipeline.open("", "llama-cpp") as pipeline:
        for kind in (kinds[0], *kinds):
            socket = MESSAGES.get(kind)
            message = b"" if socket is None else socket[1]().encode()
            path, make = POSTS.get(kind, ("", dict))
            body = json.dumps({"model": "m", "max_tokens": 1, **make()}).encode()
            probe = Probe()
            task = asyncio.create_task(probe.run())
            if socket is not None:
                await talk(pipeline.url + socket[0][1:], message)
            else:
                await pipeline.ask(path, body, answers=(200, 400, 413))
            task.cancel()
            holds.append(1000 * probe.longest)
    return holds[1:]


async def talk(url: str, message: bytes) -> None:
    """Send one message, and wait for what is said to it first. The client is in this process, which costs a copy."""
    async with aiohttp.ClientSession() as session, session.ws_connect(url, compress=0) as socket:
        await socket.send_str(message.decode())
        await socket.receive()


def main() -> None:
    """Read the command line, measure, print."""
    kinds = [*POSTS, *MESSAGES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds)
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    runs = [uvloop.run(measure(args.kinds)) for _ in range(args.runs)]
    print("| llama-cpp | longest hold, ms |\n|---|---|")
    for kind, column in zip(args.kinds, zip(*runs, strict=True), strict=True):
        print(f"| {kind} | {statistics.median(column):.0f} |")


if __name__ == "__main__":
    main()
