"""Which call a piece of an answer belongs to, however a server numbers its calls."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tg_base.llm.anthropic.stream import StreamDecoder as AnthropicAnswer
from tg_bedrock.stream import StreamDecoder as BedrockAnswer
from tg_flow.providers.mistral import stream as mistral_wire
from tg_flow.providers.openai import stream as openai_wire
from tg_schema import ToolCallDelta
from tg_schema.conversation import whole_calls

PARIS = ToolCallDelta(0, "a", "weather", '{"city":"Paris"}')
OSLO = ToolCallDelta(1, "b", "weather", '{"city":"Oslo"}')
Piece = tuple[int | None, str | None, str | None, str]

ALTERNATING: dict[str, list[Piece]] = {
    "by index": [
        (0, "a", "weather", ""), (1, "b", "weather", ""), (0, None, None, '{"city":'), (1, None, None, '{"city":'),
        (0, None, None, '"Paris"}'), (1, None, None, '"Oslo"}'),
    ],
    "by index and id": [
        (0, "a", "weather", '{"city":'), (1, "b", "weather", '{"city":'), (0, "a", None, '"Paris"}'),
        (1, "b", None, '"Oslo"}'),
    ],
    "by id alone": [
        (None, "a", "weather", '{"city":'), (None, "b", "weather", '{"city":'), (None, "a", None, '"Paris"}'),
        (None, "b", None, '"Oslo"}'),
    ],
    "one after the other, not numbered": [
        (None, "a", "weather", '{"city":'), (None, None, None, '"Paris"}'), (None, "b", "weather", '{"city":'),
        (None, None, None, '"Oslo"}'),
    ],
    "all with the index 0": [
        (0, "a", "weather", '{"city":"Paris"}'), (0, "b", "weather", '{"city":'), (0, None, None, '"Oslo"}'),
    ],
    "from 1 on": [(1, "a", "weather", '{"city":"Paris"}'), (2, "b", "weather", '{"city":"Oslo"}')],
}  # fmt: skip


def event(piece: Piece) -> bytes:
    index, call_id, name, arguments = piece
    call = {"index": index, "id": call_id, "function": {"arguments": arguments} | ({"name": name} if name else {})}
    call = {key: value for key, value in call.items() if value is not None}
    return msgspec.json.encode({"object": "x", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})


@pytest.mark.parametrize("pieces", ALTERNATING.values(), ids=ALTERNATING)
@pytest.mark.parametrize("wire", [openai_wire.StreamDecoder, mistral_wire.StreamDecoder], ids=["openai", "mistral"])
def test_pieces_that_alternate_come_together(
    wire: type[openai_wire.StreamDecoder | mistral_wire.StreamDecoder], pieces: list[Piece]
) -> None:
    answer = wire()
    chunks = [answer.chunk(event(piece)) for piece in pieces]
    assert whole_calls(call for chunk in chunks if chunk for call in chunk.tool_calls) == (PARIS, OSLO)


def test_blocks_of_the_other_wires_may_alternate() -> None:
    def deltas(index: int, *texts: str) -> list[dict[str, Any]]:
        return [
            {"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": text}}
            for text in texts
        ]

    def start(index: int, call_id: str) -> dict[str, Any]:
        block = {"type": "tool_use", "id": call_id, "name": "weather", "input": {}}
        return {"type": "content_block_start", "index": index, "content_block": block}

    first, second = deltas(1, '{"city":', '"Paris"}'), deltas(2, '{"city":', '"Oslo"}')
    events = [start(1, "a"), start(2, "b"), first[0], second[0], first[1], second[1]]
    events += [{"type": "content_block_stop", "index": index} for index in (1, 2)]
    answer = AnthropicAnswer()
    chunks = [answer.chunk(msgspec.json.encode(event)) for event in events]
    assert whole_calls(call for chunk in chunks if chunk for call in chunk.tool_calls) == (PARIS, OSLO)

    def block(kind: str, index: int, **what: Any) -> Any:
        return {kind: {"contentBlockIndex": index} | what}

    bedrock = BedrockAnswer()
    calls = {1: "a", 2: "b"}
    told = [
        block("contentBlockStart", index, start={"toolUse": {"toolUseId": call_id, "name": "weather"}})
        for index, call_id in calls.items()
    ]
    for text, index in (('{"city":', 1), ('{"city":', 2), ('"Paris"}', 1), ('"Oslo"}', 2)):
        told.append(block("contentBlockDelta", index, delta={"toolUse": {"input": text}}))
    chunks = [bedrock.chunk(msgspec.json.encode(event)) for event in told]
    assert whole_calls(call for chunk in chunks if chunk for call in chunk.tool_calls) == (PARIS, OSLO)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text('ab{}":', max_size=12), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_any_alternation_gives_the_same_calls(texts: list[str], chance: st.DrawFn) -> None:
    left = {index: list(text) for index, text in enumerate(texts)}
    answer = openai_wire.StreamDecoder()
    chunks = [answer.chunk(event((index, f"id{index}", "see", ""))) for index in left]
    while any(left.values()):
        index = chance.choice([index for index, rest in left.items() if rest])  # type: ignore[attr-defined]
        chunks.append(answer.chunk(event((index, None, None, left[index].pop(0)))))
    calls = whole_calls(call for chunk in chunks if chunk for call in chunk.tool_calls)
    assert [(call.id, call.arguments) for call in calls] == [(f"id{n}", text) for n, text in enumerate(texts)]
