"""What a response repeats of its request is in none of its events copied, and in each of them."""

import tracemalloc
from typing import Any

import pytest

from tests.flow.responses_stream import read_events
from tests.unit.test_responses_request import read
from tg_gateway.dialects import MAX_WRITE_BYTES, Output, join_output, slice_output
from tg_gateway.dialects.responses.long_fields import LongFields
from tg_gateway.dialects.responses.response_draft import make_draft
from tg_gateway.dialects.responses.writers import EventWriter
from tg_schema import TextCompletionResponse, decode
from tg_schema.errors import Internal

LONG = "a long description, " * 100_000
"""2 MB."""
TOOL = {"type": "function", "name": "look", "description": LONG, "parameters": {"type": "object"}, "strict": True}
FORMAT = {"type": "json_schema", "name": "n", "schema": {"description": LONG}, "description": None, "strict": False}
LONG_FIELDS: dict[str, Any] = {"tools": [TOOL], "instructions": LONG, "text": {"format": FORMAT}}


def make_writer(**fields: Any) -> EventWriter:
    return EventWriter(make_draft(read(**fields), "m"))


@pytest.mark.parametrize("name", LONG_FIELDS)
def test_events_have_the_long_fields_and_no_copy_of_them(name: str) -> None:
    writer, last = make_writer(**{name: LONG_FIELDS[name]}), TextCompletionResponse(response="x", end_of_stream=True)
    told: list[Output] = []
    tracemalloc.start()
    try:
        told += [writer.write(last), writer.end()]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(LONG) / 10
    events = [event for event in read_events(b"".join(map(join_output, told))) if "response" in event]
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.completed"]
    assert all(event["response"][name] == LONG_FIELDS[name] for event in events)


def test_a_text_that_looks_like_a_mark_stays() -> None:
    fields, likeness = LongFields(), "0123456789abcdef" * 2
    data = b"[%b,%b]" % (fields.encode(likeness), fields.encode(LONG))
    assert decode(list[str], join_output(fields.fill(data))) == [likeness, LONG]


def test_a_failure_tells_them_too() -> None:
    writer = make_writer(instructions=LONG)
    *_, failed = read_events(join_output(writer.fail(Internal("down"))))
    assert (failed["type"], failed["response"]["instructions"]) == ("response.failed", LONG)


@pytest.mark.parametrize("sizes", [(0,), (1, 2), (MAX_WRITE_BYTES,), (5, 3 * MAX_WRITE_BYTES + 7, 5), (200_000,) * 4])
def test_slices_are_small_and_whole(sizes: tuple[int, ...]) -> None:
    pieces = tuple(bytes([number]) * size for number, size in enumerate(sizes))
    slices = [bytes(part) for part in slice_output(pieces)]
    assert b"".join(slices) == b"".join(pieces)
    assert all(0 < len(part) <= MAX_WRITE_BYTES for part in slices) or sizes == (0,)
