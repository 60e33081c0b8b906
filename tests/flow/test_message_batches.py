"""Batches of messages, as Anthropic's own SDK uses them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
from anthropic import BadRequestError as RefusedMessages
from anthropic import NotFoundError as UnknownMessages

from tests.flow.background_asking import DEADLINE
from tests.flow.open_gateway import open_gateway


def message(custom_id: str, words: int = 2, **fields: Any) -> Any:
    params = {"model": "counting", "max_tokens": 100, "messages": [{"role": "user", "content": str(words)}]}
    return {"custom_id": custom_id, "params": params | fields}


@asynccontextmanager
async def open_anthropic() -> AsyncIterator[AsyncAnthropic]:
    async with open_gateway() as it:
        http = DefaultAsyncHttpxClient(verify=False)
        async with AsyncAnthropic(base_url=it.gateway.url, api_key="any", http_client=http, max_retries=0) as client:
            yield client


async def until_ended(client: AsyncAnthropic, batch: Any) -> Any:
    async with asyncio.timeout(DEADLINE):
        while batch.processing_status != "ended":
            await asyncio.sleep(0.01)
            batch = await client.messages.batches.retrieve(batch.id)
    return batch


async def test_a_batch_of_messages() -> None:
    async with open_anthropic() as client:
        asked = [message("a", 1), message("b", 2), message("wrong", model="unknown"), message("s", stream=True)]
        begun = await client.messages.batches.create(requests=asked)
        assert (begun.processing_status, begun.request_counts.processing) == ("in_progress", 4)
        batch = await until_ended(client, begun)
        counts = batch.request_counts
        assert (counts.succeeded, counts.errored, counts.processing) == (2, 2, 0)
        results = {each.custom_id: each.result async for each in await client.messages.batches.results(batch.id)}
        good = {name: each.message.content[0] for name, each in results.items() if each.type == "succeeded"}
        assert {name: block.text for name, block in good.items() if block.type == "text"} == {"a": "0 ", "b": "0 1 "}
        errors = {name: each.error.error.type for name, each in results.items() if each.type == "errored"}
        assert errors == {"wrong": "not_found_error", "s": "invalid_request_error"}
        assert [each.id async for each in client.messages.batches.list()] == [batch.id]
        assert (await client.messages.batches.delete(batch.id)).id == batch.id
        assert [each async for each in client.messages.batches.list()] == []
        with pytest.raises(UnknownMessages):
            await client.messages.batches.retrieve(batch.id)


async def test_a_message_with_line_breaks_is_one_line() -> None:
    async with open_gateway() as it:
        text = json.dumps({"requests": [message("a", 2), message("b", 1)]}, indent=2)
        async with it.http.post("v1/messages/batches", data=text.replace("\n", "\r\n")) as answer:
            begun = (await answer.json())["id"]
        shown = dict[str, Any]()
        async with asyncio.timeout(DEADLINE):
            while shown.get("processing_status") != "ended":
                await asyncio.sleep(0.01)
                async with it.http.get(f"v1/messages/batches/{begun}") as answer:
                    shown = await answer.json()
        assert shown["request_counts"]["succeeded"] == 2


async def test_lists_of_messages_go_on_in_both_directions() -> None:
    async with open_anthropic() as client:
        begun = [await client.messages.batches.create(requests=[message("a", each)]) for each in range(4)]
        newest, second, third, oldest = (each.id for each in reversed(begun))
        ask = client.messages.batches.list
        assert [each.id async for each in ask(after_id=newest, limit=2)] == [second, third, oldest]
        page = await ask(before_id=oldest, limit=2)
        assert ([each.id for each in page.data], page.has_more) == ([second, third], True)
        assert [each.id async for each in page] == [second, third, newest]
        assert [each.id async for each in ask(limit=1000)] == [newest, second, third, oldest]
        wrong: Any
        for wrong in ({"limit": 1001}, {"before_id": "no"}, {"after_id": newest, "before_id": oldest}):
            with pytest.raises(RefusedMessages):
                await ask(**wrong)


async def test_wrong_batches_of_messages_are_refused() -> None:
    async with open_anthropic() as client:
        for asked in ([], [message("a"), message("a")]):
            with pytest.raises(RefusedMessages):
                await client.messages.batches.create(requests=asked)
        for name in ("msgbatch_unknown", "batch_unknown"):
            with pytest.raises(UnknownMessages):
                await client.messages.batches.cancel(name)
        begun = await client.messages.batches.create(requests=[message("long", 100_000)])
        with pytest.raises(RefusedMessages, match="has not ended"):
            await client.messages.batches.delete(begun.id)
        cancelled = (await client.messages.batches.cancel(begun.id)).cancel_initiated_at
        batch = await until_ended(client, begun)
        assert cancelled is not None
        assert (batch.request_counts.canceled, batch.cancel_initiated_at) == (1, cancelled)
        (result,) = [each async for each in await client.messages.batches.results(batch.id)]
        assert (result.custom_id, result.result.type) == ("long", "canceled")
