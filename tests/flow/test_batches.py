"""Batches before one gateway and two, as OpenAI's own SDK uses them."""

import asyncio
from typing import Any

import pytest
from openai import NotFoundError
from structlog.testing import capture_logs

from tests.flow.background_asking import DEADLINE, open_pair
from tests.flow.batch_asking import (
    CHAT,
    KEYED,
    begin,
    line,
    read,
    until_answered,
    until_begun,
    until_over,
    write,
)
from tests.flow.open_gateway import open_gateway
from tests.flow.openai_sdk import open_sdk, sdk
from tg_base.bus.memory import MemoryBus
from tg_gateway.access import Limits
from tg_gateway.dialects import batches
from tg_gateway.jobs import JobLogs, batch_store
from tg_gateway.jobs.batch_run import MAX_NOTES
from tg_gateway.jobs.batch_runs import MAX_BATCHES, MAX_LINES, MAX_OF_KEY
from tg_schema.topics import Topics


async def test_a_batch_is_answered_by_custom_ids() -> None:
    async with open_sdk() as (it, client):
        lines = [line("a", 2), line("b", 3), line("wrong", 1, model="unknown"), line("streamed", 1, stream=True)]
        begun = await begin(client, lines)
        assert (begun.request_counts.total, begun.endpoint, begun.metadata) == (4, CHAT, {"of": "a test"})
        batch = await until_over(client, begun)
        counts = batch.request_counts
        assert (batch.status, counts.completed, counts.failed) == ("completed", 2, 2)
        good = {each["custom_id"]: each["response"] for each in await read(client, batch.output_file_id)}
        assert {name: answer["body"]["choices"][0]["message"]["content"] for name, answer in good.items()} == {
            "a": "0 1 ",
            "b": "0 1 2 ",
        }
        bad = {each["custom_id"]: each["response"] for each in await read(client, batch.error_file_id)}
        assert {name: answer["status_code"] for name, answer in bad.items()} == {"wrong": 404, "streamed": 400}
        assert bad["wrong"]["body"]["error"]["code"] == "model_not_found"
        assert it.llm.generated == 5
        # The answers are those of the batch, which has a list of its own.
        async with it.http.get("v1/streams") as response:
            assert await response.json() == {"streams": []}


@pytest.mark.parametrize(
    ("endpoint", "body", "text"),
    [
        ("/v1/completions", {"model": "counting", "prompt": "2"}, ("choices", 0, "text")),
        ("/v1/responses", {"model": "counting", "input": "2"}, ("output", 0, "content", 0, "text")),
        # Several prompts are several requests.
        ("/v1/completions", {"model": "counting", "prompt": ["1", "2"]}, ("choices", 1, "text")),
    ],
)
async def test_other_endpoints(endpoint: str, body: dict[str, Any], text: tuple[str | int, ...]) -> None:
    async with open_sdk() as (_, client):
        lines = [{"custom_id": "a", "method": "POST", "url": endpoint, "body": body}]
        batch = await until_over(client, await begin(client, lines, endpoint))
        (answer,) = await read(client, batch.output_file_id)
        found = answer["response"]["body"]
        for step in text:
            found = found[step]
        assert found == "0 1 "


async def test_a_line_of_several_prompts_is_a_request_of_its_key() -> None:
    with capture_logs() as logs:
        async with open_gateway(KEYED) as it, sdk(it.gateway, "one") as client:
            url = "/v1/completions"
            # The model of the second one has a defect.
            bodies = ({"model": "counting", "prompt": ["1", last]} for last in ("2", "no number"))
            lines = [
                {"custom_id": str(number), "method": "POST", "url": url, "body": body}
                for number, body in enumerate(bodies)
            ]
            batch = await until_over(client, await begin(client, lines, url))
            told = [*await read(client, batch.output_file_id), *await read(client, batch.error_file_id)]
    found = {line["request"]: line for line in logs if line["event"] == "gateway.request" and line["door"] == "batch"}
    assert {each["response"]["request_id"] for each in told} == set(found)
    assert {line["key"] for line in found.values()} == {"one"}
    assert sorted(line["status"] for line in found.values()) == sorted(each["response"]["status_code"] for each in told)


@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        ([line("a"), "{", line("b")], [("invalid_json_line", 2, None)]),
        (["[]"], [("invalid_json_line", 1, None)]),
        (['{"custom_id": "a"}'], [("invalid_json_line", 1, None)]),
        ([line("a"), line("b"), line("a")], [("duplicate_custom_id", 3, "custom_id")]),
        ([line("a", url="/v1/completions")], [("mismatched_url", 1, "url")]),
        ([line("a") | {"method": "GET"}], [("invalid_method", 1, "method")]),
    ],
)
async def test_a_file_with_a_wrong_line_fails_at_once(
    lines: list[object], faults: list[tuple[str, int, str | None]]
) -> None:
    async with open_sdk() as (it, client):
        batch = await begin(client, lines)
        assert (batch.status, batch.failed_at is not None, batch.output_file_id) == ("failed", True, None)
        assert [(each.code, each.line, each.param) for each in batch.errors.data] == faults
        assert (await client.batches.retrieve(batch.id)).status == "failed"
        assert it.llm.requests == []


async def test_another_key_finds_nothing() -> None:
    async with open_gateway(KEYED) as it, sdk(it.gateway, "one") as one, sdk(it.gateway, "two") as two:
        batch = await until_over(one, await begin(one, [line("a")]))
        assert batch.status == "completed"
        for name in (batch.input_file_id, batch.output_file_id):
            assert (await one.files.retrieve(name)).id == name
            for ask in (two.files.retrieve, two.files.content, two.files.delete):
                with pytest.raises(NotFoundError):
                    await ask(name)
        for cancel in (two.batches.retrieve, two.batches.cancel):
            with pytest.raises(NotFoundError):
                await cancel(batch.id)
        with pytest.raises(NotFoundError):
            await two.batches.create(input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h")
        assert [each.id async for each in two.files.list()] == [each.id async for each in two.batches.list()] == []
        assert [each.id async for each in one.batches.list()] == [batch.id]


async def test_whoever_asks_for_a_batch_reads_no_results() -> None:
    async with open_sdk() as (it, client):
        lines = 3 * MAX_NOTES
        batch = await until_over(client, await begin(client, [line(f"l{number}", 0) for number in range(lines)]))
        assert batch.request_counts.completed == lines
        entries = await it.bus.read(Topics().kept(batch.id))
        # The head, who makes it, its progress, and the end.
        assert len(entries) <= MAX_NOTES + 3
        assert sum(len(entry.body) for entry in entries) < 100 * MAX_NOTES


async def test_lines_leave_the_places_of_the_background_to_others() -> None:
    async with open_pair(Limits(background=1)) as pair:
        begun = [await begin(pair.one, [line(f"l{number}", 1) for number in range(MAX_LINES)]) for _ in range(2)]
        await asyncio.wait_for(pair.llm.started.wait(), DEADLINE)
        made = await pair.one.responses.create(model="counting", input="1", background=True)
        pair.step(2 * MAX_LINES + 1)
        for batch in begun:
            over = await until_over(pair.one, batch)
            assert (over.request_counts.completed, over.request_counts.failed) == (MAX_LINES, 0)
        async with asyncio.timeout(DEADLINE):
            while made.status != "completed":
                made = await pair.other.responses.retrieve(made.id)


async def test_empty_lines_and_a_byte_order_mark_are_no_fault() -> None:
    async with open_sdk() as (_, client):
        data = b"\xef\xbb\xbf" + write([line("a", 1), "", line("b", 1)]) + b"\n \n"
        file = await client.files.create(file=("in.jsonl", data), purpose="batch")
        made: Any = await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
        assert (await until_over(client, made)).request_counts.completed == 2


async def test_a_key_with_many_batches_leaves_room_to_others() -> None:
    async with open_gateway(KEYED) as it, sdk(it.gateway, "one") as one, sdk(it.gateway, "two") as two:
        it.llm.step = asyncio.Semaphore(0)
        many = [await begin(one, [line("a", 1)]) for _ in range(MAX_BATCHES)]
        await until_begun(one, many, MAX_OF_KEY)
        await until_begun(two, [await begin(two, [line("a", 1)])], 1)
        assert await until_begun(one, many, MAX_OF_KEY) == MAX_OF_KEY


async def test_a_batch_shows_when_it_was_first_cancelled() -> None:
    now = 1.0
    kept = batch_store.KeyBatches(JobLogs(MemoryBus(), Topics(), lambda: now), "key", Topics().batches)
    await kept.begin(batches.Head("batch_1", CHAT, "file-1", 1, 1, 99))
    assert (await kept.find("batch_1")).cancelled == 0
    for at in (5.0, 7.0):
        now = at
        await kept.cancel("batch_1")
        assert (await kept.find("batch_1")).cancelled == 5


async def test_a_cancelled_batch_keeps_what_it_has() -> None:
    async with open_pair() as pair:
        lines = [line("done", 1), *(line(f"{number}", 100) for number in range(40))]
        begun = await begin(pair.one, lines)
        # Each of those that are asked side by side says a word.
        pair.step(MAX_LINES)
        await until_answered(pair.other, begun, 1)
        assert (await pair.other.batches.cancel(begun.id)).status in {"cancelling", "cancelled"}
        batch = await until_over(pair.one, await pair.one.batches.retrieve(begun.id))
        assert (batch.status, batch.cancelled_at is not None) == ("cancelled", True)
        assert begun.created_at <= batch.cancelling_at <= batch.cancelled_at
        assert [each["custom_id"] for each in await read(pair.other, batch.output_file_id)] == ["done"]
        rest = await read(pair.other, batch.error_file_id)
        assert sorted(each["custom_id"] for each in rest) == sorted(str(number) for number in range(40))
        assert {each["error"]["code"] for each in rest} == {"batch_cancelled"}
        assert (await pair.one.batches.cancel(begun.id)).status == "cancelled"
