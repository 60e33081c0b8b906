"""A large request on its way from a worker process: in parts that are small, and the same request behind them."""

import pickle

import pytest

from tg_base.llm.large_request import (
    MAX_SCHEMA_BYTES,
    PART_BIASES,
    PART_IDS,
    PART_OBJECTS,
    RequestParts,
    join_request,
    read_in_parts,
)
from tg_base.server import Unreadable
from tg_schema import Message, Sampling, TextCompletionRequest, Tool, encode
from tg_schema.errors import BadRequest, TooLarge

MESSAGES = tuple(Message(("user", "assistant")[number % 2], f"é{number}") for number in range(2 * PART_OBJECTS + 1))
TOOLS = tuple(Tool(f"t{number}", strict=True) for number in range(PART_OBJECTS + 1))
BIAS = dict.fromkeys(range(50000), -100.0)
REQUESTS = {
    "messages": TextCompletionRequest(messages=MESSAGES, tools=TOOLS, tool_choice="t3", streaming=True),
    "mask": TextCompletionRequest(prompt="p", sampling=Sampling(logit_bias=BIAS, max_tokens=3)),
    "ids": TextCompletionRequest(operation="detokenize", prompt_ids=tuple(range(2 * PART_IDS + 1))),
    "id lists": TextCompletionRequest(operation="embed", id_lists=tuple((7,) * size for size in (1, PART_IDS + 3, 2))),
    "texts": TextCompletionRequest(operation="embed", texts=("one", "two", "")[:2] * 600),
    "scored": TextCompletionRequest(operation="score", prompt="p", scored=(1, 2), sampling=Sampling(logprobs=0)),
    "small": TextCompletionRequest(prompt="p"),
}


def plain(request: TextCompletionRequest) -> TextCompletionRequest:
    return TextCompletionRequest(**{name: getattr(request, name) for name in TextCompletionRequest.__struct_fields__})


@pytest.mark.parametrize("kind", REQUESTS)
async def test_the_same_request_in_stream_parts(kind: str) -> None:
    request = REQUESTS[kind]
    parts: RequestParts = pickle.loads(pickle.dumps(read_in_parts(encode(request))))
    most = dict.fromkeys(("prompt_ids", "id_lists", "scored"), PART_IDS) | {"logit_bias": PART_BIASES}
    for name, part in parts.parts:
        assert len(pickle.loads(part)) <= most.get(name, PART_OBJECTS)
    # What is left for one turn of the loop is next to nothing.
    assert len(pickle.dumps(parts.head)) < 2000
    joined = await join_request(parts)
    assert plain(joined) == request
    assert joined.features == request.features


def test_a_large_request_that_is_none() -> None:
    with pytest.raises(Unreadable):
        read_in_parts(b'{"prompt": 5}')
    with pytest.raises(BadRequest, match="prompt is missing"):
        read_in_parts(b"{}")


@pytest.mark.parametrize("place", ["schema", "tools[1]"])
def test_a_schema_of_any_size_is_refused(place: str) -> None:
    schema = {"type": "object", "description": "x" * MAX_SCHEMA_BYTES}
    tools = (Tool("a"), Tool("b", parameters=schema)) if place != "schema" else ()
    request = TextCompletionRequest(prompt="p", schema=schema if place == "schema" else None, tools=tools)
    with pytest.raises(TooLarge, match="a schema may have") as refused:
        read_in_parts(encode(request))
    assert refused.value.message.startswith(place)
