"""How the cells ask a provider, and how they compare what the wire saw with what was asked."""

import asyncio
import json
from contextlib import aclosing
from typing import Any

from tg_base.llm import LlmService
from tg_schema import ImagePart, Message, TextCompletionRequest, TextCompletionResponse, TextPart, Tool, ToolCall
from tg_schema.conversation import Part, ReasoningPart, whole_calls

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one point."""

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
LOOSE_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "places": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "note": {"type": "string"}}},
        },
    },
    "required": ["city"],
}
"""As pydantic and zod write them: with optional properties, and without a word about others."""
WEATHER = Tool("weather", "The weather in a city", SCHEMA)
CLOCK = Tool("clock", "What time it is")

REQUEST = TextCompletionRequest(system="be brief", prompt="say hello", streaming=True)
WHOLE = TextCompletionRequest(system="be brief", prompt="say hello")

HISTORY = TextCompletionRequest(
    system="be brief",
    messages=(Message("user", "who are you?"), Message("assistant", "a model"), Message("user", "say hello")),
    streaming=True,
)
TOOL_HISTORY = TextCompletionRequest(
    messages=(
        Message("user", "weather in Ulm?"),
        Message(
            "assistant",
            "let me look",
            tool_calls=(
                ToolCall("call_1", "weather", '{"city": "Ulm"}'),
                ToolCall("call_2", "weather", '{"city": "Köln"}'),
            ),
        ),
        Message("tool", "rain", tool_call_id="call_1", name="weather"),
        Message("tool", "it has failed", tool_call_id="call_2", name="weather", error=True),
        Message("user", "and the time?"),
    ),
    tools=(WEATHER, CLOCK),
    streaming=True,
)
IMAGE = TextCompletionRequest(
    messages=(Message("user", (TextPart("what is this?"), ImagePart(media_type="image/png", data=PNG))),),
    streaming=True,
)
IMAGE_URL = TextCompletionRequest(
    messages=(Message("user", (TextPart("and this?"), ImagePart(url="https://pictures.invalid/a.png"))),),
    streaming=True,
)


async def responses(
    service: LlmService,
    request: TextCompletionRequest = REQUEST,
    into: list[TextCompletionResponse] | None = None,
    began: asyncio.Event | None = None,
) -> list[TextCompletionResponse]:
    """All records of an answer; those before an error are left in `into`. The first one sets `began`."""
    received = [] if into is None else into
    async with aclosing(service.on_request(request)) as stream:
        async for response in stream:
            received.append(response)
            if began is not None:
                began.set()
    return received


def joined(records: list[TextCompletionResponse]) -> TextCompletionResponse:
    """The answer as one record."""
    (answer,) = TextCompletionResponse.join(records)
    return answer


def turn_of(records: list[TextCompletionResponse]) -> Message:
    """The answer as a turn of the assistant, with all that its provider may want back."""
    parts: list[Part] = []
    for record in TextCompletionResponse.join(records):
        if record.reasoning or record.signature:
            parts.append(ReasoningPart(record.reasoning or "", record.signature))
        if record.response:
            parts.append(TextPart(record.response))
    calls = whole_calls(call for record in records for call in record.tool_calls)
    return Message(
        "assistant",
        tuple(parts),
        tool_calls=tuple(ToolCall(it.id or "", it.name or "", it.arguments or "{}", it.signature) for it in calls),
    )


def spoken(turns: tuple[Message, ...]) -> list[tuple[Any, ...]]:
    """What a conversation says, without what some wires have no place for (ids, names, failed tools)."""
    return [
        (
            turn.role,
            turn.text,
            [(image.url, image.data and (image.media_type, image.data)) for image in turn.images],
            [(call.name, json.loads(call.arguments)) for call in turn.tool_calls],
        )
        for turn in turns
    ]
