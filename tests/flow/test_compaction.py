"""Conversations that a summary replaces: what the model is asked, the item, and requests that go on from it."""

from typing import Any

import openai
import pytest

from tests.fakes.turns_llm import Turn
from tests.flow.open_responses import MODEL, open_responses
from tests.flow.test_responses_socket import create, until_end
from tg_base.llm import LlmChunk
from tg_gateway.dialects.responses.compaction import SUMMARIZE
from tg_schema import Message
from tg_schema.errors import IncompleteStream

PIXEL = "data:image/png;base64,iVBORw0KGgo="
CONVERSATION: Any = [
    {"role": "developer", "content": "be brief"},
    {
        "role": "user",
        "content": [{"type": "input_text", "text": "See: "}, {"type": "input_image", "image_url": PIXEL}],
    },
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"role": "assistant", "content": "I look."},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"it"}'},
    {"type": "function_call", "call_id": "c2", "name": "wait", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c2", "output": "waited"},
    {"type": "function_call_output", "call_id": "c1", "output": "a cat"},
]
TRANSCRIPT = """\
developer: be brief
user: See: [an image]
assistant: I look.
assistant calls look: {"at":"it"}
assistant calls wait: {}
result of wait: waited
result of look: a cat"""
SUMMARY: Turn = ("They saw", " a {cat}. ")
BYE: Turn = ("Bye",)
TOLD = Message("user", "The conversation until now, in summary:\n\nThey saw a {cat}.")


async def test_a_conversation_goes_on_from_its_summary() -> None:
    async with open_responses(SUMMARY, BYE, BYE) as it, it.opened.http.ws_connect("v1/responses") as socket:
        compacted = await it.client.responses.compact(
            model=MODEL, input=CONVERSATION, instructions="In English.", prompt_cache_key="k"
        )
        (item,) = compacted.output
        assert (compacted.object, item.type) == ("response.compaction", "compaction")
        assert (compacted.usage.input_tokens, compacted.usage.output_tokens) == (10, 2)
        items: Any = [item.to_dict(), {"role": "user", "content": "And now?"}]
        said = await it.client.responses.create(model=MODEL, input=items)
        await create(socket, input=items)
        assert (await until_end(socket))[-1]["type"] == "response.completed"
    asked, *gone_on = it.llm.requests
    assert (asked.system, asked.prompt) == (f"{SUMMARIZE}\n\nIn English.", TRANSCRIPT)
    assert (asked.cache_key, asked.streaming, asked.tools) == ("k", False, ())
    assert [request.messages for request in gone_on] == [(TOLD, Message("user", "And now?"))] * 2
    assert said.output_text == "Bye"


async def test_a_kept_conversation_is_compacted() -> None:
    async with open_responses(BYE, SUMMARY, BYE, SUMMARY) as it:
        ask: Any = {"model": MODEL, "store": True}
        first = await it.client.responses.create(**ask, input="hi")
        compacted = await it.client.responses.compact(model=MODEL, previous_response_id=first.id)
        assert it.llm.requests[1].prompt == "user: hi\nassistant: Bye"
        items: Any = [item.to_dict() for item in compacted.output]
        second = await it.client.responses.create(**ask, input=[*items, {"role": "user", "content": "so?"}])
        listed: Any = [each async for each in it.client.responses.input_items.list(second.id, order="asc")]
        assert [each.type for each in listed] == ["compaction", "message"]
        again = await it.client.responses.compact(model=MODEL, input=[*items, *items])
        assert (it.llm.requests[3].prompt or "").count("They saw a {cat}.") == 2
        assert again.id != compacted.id


@pytest.mark.parametrize(
    ("turn", "error", "says"),
    [
        (("cut", LlmChunk(finish_reason="length")), openai.APIStatusError, "cut at the model's limit"),
        (("cut", LlmChunk(finish_reason="content_filter")), openai.UnprocessableEntityError, "filter stopped"),
        ((" ",), openai.InternalServerError, "wrote no summary"),
        (("Th", IncompleteStream("cut")), openai.InternalServerError, "cut"),
    ],
)
async def test_a_summary_that_is_not_whole_is_an_error(
    turn: Turn, error: type[openai.APIStatusError], says: str
) -> None:
    async with open_responses(turn) as it:
        with pytest.raises(error, match=says):
            await it.client.responses.compact(model=MODEL, input="hi")


@pytest.mark.parametrize("content", ["gAAAAAB=", "", "tg1.", "tg1.eyJzaWduYXR1cmUiOiJ4In0="])
async def test_a_summary_of_others_is_refused(content: str) -> None:
    async with open_responses(BYE) as it:
        item: Any = {"type": "compaction", "encrypted_content": content}
        with pytest.raises(openai.BadRequestError, match="no summary of ours") as raised:
            await it.client.responses.create(model=MODEL, input=[item])
        assert (raised.value.param, it.llm.requests) == ("input[0].encrypted_content", [])


async def test_what_it_does_not_use_is_named() -> None:
    async with open_responses(SUMMARY) as it:
        raw = await it.client.responses.with_raw_response.compact(
            model=MODEL, input="hi", extra_body={"tools": [], "odd": 1}
        )
        assert raw.headers["X-Tokengrid-Ignored"] == "odd, tools"
