"""The provider `pool` and `tg-pick` know servers by the same beginnings of prompts: what one knows helps both."""

from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from tests.picker.pools.test_prompts_of_bodies import ASKED, CHAT, DATA, MESSAGES, RESPONSES, SCHEMA
from tg_flow.providers import open_provider
from tg_picker.core import fingerprint_prompt
from tg_picker.extproc.model_request import read_model_request
from tg_picker.pools import PromptFields, read_prompt
from tg_picker.provider import Pool
from tg_schema import ImagePart, Message, TextCompletionRequest, TextPart, Tool, ToolCall

LONG = "It rains. " * 100
RECORD = TextCompletionRequest(
    system="Be brief.",
    messages=(
        Message("system", "Be kind."),
        Message("user", (TextPart(ASKED), ImagePart(media_type="image/png", data=DATA))),
        Message("assistant", "I look.", tool_calls=(ToolCall("1", "weather", '{"city": "Oslo"}'),)),
        Message("tool", "Rain.", tool_call_id="1"),
    ),
    prompt=f"And now?{LONG}",
    tools=(Tool("weather", "The weather.", SCHEMA),),
)


@pytest.mark.parametrize("body", [CHAT, MESSAGES, RESPONSES], ids=["chat", "messages", "responses"])
async def test_the_same_conversation_has_the_same_blocks(body: dict[str, Any]) -> None:
    # The last turn of all three ends with these words.
    written = msgspec.json.encode({"model": "m", **body}).replace(b"And now?", f"And now?{LONG}".encode())
    picked = read_model_request(written).prompt
    provider = await open_provider("pool", "m", {"endpoints": ["127.0.0.1:1"], "scraped": False})
    async with aclosing(provider):
        assert isinstance(provider, Pool)
        wanted = provider._make_order(RECORD).wanted
    assert len(wanted.prefix.blocks) >= 4
    assert wanted.prefix == fingerprint_prompt(picked.text, "m", None)
    assert wanted.prompt_tokens == picked.tokens


PLAIN = TextCompletionRequest(
    system="Be brief.",
    messages=(Message("system", "Be kind."), Message("user", ASKED), Message("assistant", LONG), Message("user", "")),
    prompt=f"And now, \u20ac?{LONG}",
)


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        (PLAIN, {}),
        (PLAIN, {"developer_role": True}),
        (PLAIN, {"extra_body": {"prompt": "Be kind."}}),
        (TextCompletionRequest(messages=(Message("developer", LONG), *PLAIN.messages), prompt="?"), {}),
        (TextCompletionRequest(prompt=LONG), {}),
        (msgspec.structs.replace(RECORD, tools=()), {}),
        (msgspec.structs.replace(RECORD, tools=(), messages=RECORD.messages[2:]), {}),
        (RECORD, {}),
    ],
)
async def test_the_prompt_is_that_of_the_body(request_: TextCompletionRequest, options: dict[str, Any]) -> None:
    """A plain one is read from the record, and never from what was written."""
    provider = await open_provider("pool", "m", {"endpoints": ["127.0.0.1:1"], "scraped": False, **options})
    async with aclosing(provider):
        assert isinstance(provider, Pool)
        body, prompt = provider._write(request_)
        assert body == provider.body(request_)
    assert prompt == read_prompt(msgspec.json.decode(body, type=PromptFields))
