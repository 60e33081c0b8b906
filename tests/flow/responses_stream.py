"""What holds for every stream of the Responses API, whatever the answer: checked event by event."""

import json
from collections.abc import Sequence
from typing import Any

import pydantic
from openai.types.responses import Response, ResponseStreamEvent

PUBLISHED: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseStreamEvent)
DELTAS = {
    "response.output_text.delta": ("response.output_text.done", "text"),
    "response.reasoning_text.delta": ("response.reasoning_text.done", "text"),
    "response.reasoning_summary_text.delta": ("response.reasoning_summary_text.done", "text"),
    "response.function_call_arguments.delta": ("response.function_call_arguments.done", "arguments"),
}
ENDINGS = {"response.completed", "response.incomplete", "response.failed"}


def read_events(data: bytes) -> list[dict[str, Any]]:
    """The events of a body: each with its name, which is its type."""
    events = []
    for block in data.split(b"\n\n")[:-1]:
        if block.startswith(b":"):
            continue
        name, line = block.split(b"\n")
        events.append(json.loads(line.removeprefix(b"data: ")))
        assert name == b"event: " + events[-1]["type"].encode()
    return events


def check_stream(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The final response, after every rule of the stream has been held against its events."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        PUBLISHED.validate_python(event)
    told = ("created", "queued", "in_progress") if events[0]["response"]["background"] else ("created", "in_progress")
    begin = [f"response.{each}" for each in told]
    assert [event["type"] for event in events[: len(begin)]] == begin
    assert [event["type"] in ENDINGS for event in events] == [False] * (len(events) - 1) + [True]
    final = events[-1]["response"]
    assert {event["response"]["id"] for event in (*events[: len(begin)], events[-1])} == {final["id"]}
    Response.model_validate(final)
    items = _check_items(events[len(begin) : -1])
    shown = [item for item in final["output"] if item["id"] in {done["id"] for done in items}]
    assert shown == items
    assert len(final["output"]) - len(items) <= (1 if final["status"] == "failed" else 0)
    return dict(final)


def _check_items(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items that ended: one after the other, each with its deltas between its first and its last event."""
    items: list[dict[str, Any]] = []
    current: dict[str, Any] | None = None
    told = ""
    for event in events:
        assert event["output_index"] == len(items)
        kind = event["type"]
        if kind == "response.output_item.added":
            assert current is None
            current, told = event["item"], ""
            continue
        assert current is not None
        if kind == "response.output_item.done":
            assert (event["item"]["id"], event["item"]["type"]) == (current["id"], current["type"])
            items.append(event["item"])
            current = None
            continue
        assert event["item_id"] == current["id"]
        if kind in DELTAS:
            assert event["delta"]
            told += event["delta"]
        for done, field in DELTAS.values():
            assert kind != done or event[field] == told
        assert kind != "response.function_call_arguments.done" or event["name"] == current["name"]
    return items
