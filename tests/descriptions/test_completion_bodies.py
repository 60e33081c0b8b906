"""Every body of completions and embeddings, against OpenAI's description."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.descriptions.published import openai_description
from tests.fakes.byte_llm import ByteLlm
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.openai_sdk import MODEL

pytestmark = [pytest.mark.descriptions, pytest.mark.timeout(600)]

COMPLETIONS: Final[list[dict[str, Any]]] = [
    {"prompt": "ab"},
    {"prompt": ["a", "b"], "n": 2},
    {"prompt": [97], "echo": True},
    {"prompt": "aé", "logprobs": 2},
    {"prompt": "a", "suffix": "b", "best_of": 1, "max_tokens": 1},
]
EMBEDDINGS: Final[list[dict[str, Any]]] = [
    {"input": "a"},
    {"input": [[97], [98]], "encoding_format": "float"},
]
REFUSED: Final[list[tuple[str, dict[str, Any]]]] = [
    ("v1/completions", {"model": "nobody", "prompt": "a"}),
    ("v1/completions", {"model": MODEL}),
    ("v1/completions", {"model": MODEL, "prompt": "!"}),
    ("v1/embeddings", {"model": "nobody", "input": "a"}),
    ("v1/embeddings", {"model": MODEL, "input": "a", "dimensions": 2}),
]


async def read(it: Opened, path: str, body: dict[str, Any]) -> bytes:
    async with it.http.post(path, json={"model": MODEL, **body}) as response:
        return await response.read()


def chunks_of(data: bytes) -> Iterator[dict[str, Any]]:
    *events, done, rest = data.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    for event in events:
        yield json.loads(event.removeprefix(b"data: "))


async def test_completions() -> None:
    async with open_gateway(llm=ByteLlm()) as it:
        for body in COMPLETIONS:
            said = json.loads(await read(it, "v1/completions", body))
            openai_description().check("CreateCompletionResponse", said)
            streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
            for chunk in chunks_of(await read(it, "v1/completions", streamed)):
                # The description is that of whole answers: what a chunk has as null, it leaves out or requires.
                for choice in chunk["choices"]:
                    choice["finish_reason"] = choice["finish_reason"] or "stop"
                told = {name: value for name, value in chunk.items() if value is not None}
                openai_description().check("CreateCompletionResponse", told)


async def test_embeddings() -> None:
    async with open_gateway(llm=ByteLlm()) as it:
        for body in EMBEDDINGS:
            said = json.loads(await read(it, "v1/embeddings", body))
            openai_description().check("CreateEmbeddingResponse", said)


async def test_refusals() -> None:
    async with open_gateway(llm=ByteLlm()) as it:
        for path, body in REFUSED:
            openai_description().check("ErrorResponse", json.loads(await read(it, path, body)))
