"""The provider `pool` and `tg-pick` know servers by the same beginnings of prompts: what one knows helps both."""

from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from tests.fakes.pool_member import pool_member
from tests.picker.pools.test_prompts_of_bodies import ASKED, CHAT, DATA, MESSAGES, RESPONSES, SCHEMA
from tg_base.telemetry import trace
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


@pytest.mark.parametrize("request_", [PLAIN, RECORD], ids=["plain", "parsed"])
async def test_a_caller_has_a_cache_of_its_own(request_: TextCompletionRequest) -> None:
    """Its salt reaches the server, and no beginning of others' prompts is looked for, by whichever picker."""
    callers, blocks = ("c1", "c2", None), set[int]()
    async with pool_member() as member:
        provider = await open_provider("pool", "m", {"endpoints": [member.address], "scraped": False})
        async with aclosing(provider):
            assert isinstance(provider, Pool)
            for caller in callers:
                trace.name_caller(caller)
                assert [record async for record in provider.on_request(request_)]
                order = provider._make_order(request_)
                assert order.wanted.prefix == read_model_request(order.body).prompt.fingerprint("m", None)
                assert not blocks.intersection(order.wanted.prefix.blocks)
                blocks.update(order.wanted.prefix.blocks)
    assert [body.get("cache_salt") for body in member.asked] == [*callers]
    assert len(blocks) >= 4 * len(callers)


@pytest.mark.parametrize("request_", [PLAIN, RECORD], ids=["plain", "parsed"])
async def test_beginnings_are_kept_apart_as_the_server_is_told(request_: TextCompletionRequest) -> None:
    """By a field of another name too; a server that is told nothing has one cache for all."""
    for field, parts in (("cache_group", 2), ("", 1)):
        options = {"endpoints": ["127.0.0.1:1"], "scraped": False, "salt_field": field}
        async with aclosing(await open_provider("pool", "m", options)) as provider:
            assert isinstance(provider, Pool)
            found = set()
            for caller in ("c1", "c2"):
                trace.name_caller(caller)
                found.add(provider._make_order(request_).wanted.prefix)
        assert len(found) == parts
