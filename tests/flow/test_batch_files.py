"""Files of batches, their lists and bounds."""

from collections.abc import Sequence
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError

from tests.flow.background_asking import open_pair
from tests.flow.batch_asking import CHAT, MODELS, TWO_PARTS, begin, keep_on, line, until_over
from tests.flow.openai_sdk import open_sdk
from tg_base.bus.memory import MemoryBus
from tg_gateway.dialects import batches
from tg_gateway.jobs import JobLogs, batch_store
from tg_gateway.jobs.key_list import KeyList, find_listed
from tg_schema.errors import BusError
from tg_schema.topics import Topics


async def test_files_are_kept_listed_and_deleted() -> None:
    async with open_sdk() as (_, client):
        data = b"\r\n--x\r\n\x00\xff line\n"
        files = [await client.files.create(file=(f"{each}.bin", data), purpose="user_data") for each in "abc"]
        assert [(each.bytes, each.filename, each.purpose) for each in files] == [
            (len(data), f"{each}.bin", "user_data") for each in "abc"
        ]
        assert (await client.files.content(files[0].id)).content == data
        page = await client.files.list(limit=2)
        assert ([each.filename for each in page.data], page.has_more) == (["c.bin", "b.bin"], True)
        assert [each.filename async for each in page] == ["c.bin", "b.bin", "a.bin"]
        assert (await client.files.list(purpose="batch")).data == []
        assert (await client.files.delete(files[1].id)).deleted
        assert [each.filename async for each in client.files.list()] == ["c.bin", "a.bin"]
        for ask in (client.files.retrieve, client.files.content, client.files.delete):
            for name in (files[1].id, "file-unknown", "file-output-batch_unknown"):
                with pytest.raises(NotFoundError):
                    await ask(name)
        oldest = await client.files.list(order="asc", limit=1)
        assert ([each.filename for each in oldest.data], oldest.has_more) == (["a.bin"], True)
        assert [each.filename async for each in client.files.list(order="asc", after=files[0].id)] == ["c.bin"]
        assert [each.filename async for each in client.files.list(limit=10_000)] == ["c.bin", "a.bin"]
        wrong: Any
        for wrong in ({"limit": 0}, {"limit": 10_001}, {"after": files[1].id}, {"order": "up"}):
            with pytest.raises(BadRequestError):
                await client.files.list(**wrong)


async def test_a_form_is_read_as_browsers_write_it() -> None:
    async with open_sdk() as (it, client):
        head = 'Content-Disposition: form-data; name="file"; filename="\u00fc \\"a\\" --x;.jsonl"\r\nX: name="purpose"'
        form = f"--x\r\n{head}\r\n\r\na--x\n--x\r\n--x\r\ncontent-disposition: form-data; name=purpose\r\n\r\nbatch"
        kind = {"Content-Type": 'multipart/form-data; charset=utf-8; boundary="x"'}
        async with it.http.post(
            "v1/files", data=f"before\r\n{form}\r\n--x--\r\nbehind".encode(), headers=kind
        ) as answer:
            file = await answer.json()
        assert (file["filename"], file["purpose"]) == ('\u00fc "a" --x;.jsonl', "batch")
        assert (await client.files.content(file["id"])).content == b"a--x\n--x"


async def test_what_is_no_upload_is_refused() -> None:
    async with open_sdk() as (it, client):
        for headers in ({}, {"Content-Type": "multipart/form-data; boundary=x"}):
            async with it.http.post("v1/files", data=b"--x\r\n\r\n--x--", headers=headers) as response:
                assert response.status == 400
        with pytest.raises(NotFoundError):
            await client.batches.create(input_file_id="file-no", endpoint=CHAT, completion_window="24h")
        with pytest.raises(BadRequestError, match="endpoint"):
            await client.batches.create(input_file_id="file-no", endpoint=MODELS, completion_window="24h")


async def test_lists_go_on_behind_an_id() -> None:
    async with open_sdk() as (_, client):
        begun = [await begin(client, [line("a", each)]) for each in range(3)]
        names = [each.id for each in reversed(begun)]
        page = await client.batches.list(limit=2)
        assert ([each.id for each in page.data], page.has_more) == (names[:2], True)
        assert [each.id async for each in page] == names
        assert [each.id for each in (await client.batches.list(after=names[1])).data] == names[2:]


async def fill(kept: batch_store.KeyBatches, known: Sequence[int]) -> None:
    """List files of these sizes, without what they would have."""
    listed = KeyList(kept.logs, kept.owner, "files", batches.FILE_SECONDS)
    for number, size in enumerate(known):
        await listed.add(f"file-{number}", b"{}", kept.logs.clock() + 9_000, size)


async def test_no_more_is_kept_than_may_and_nothing_is_erased_for_it() -> None:
    async with open_pair() as pair:
        begun = await begin(pair.one, [line("a", 2)])
        # Through any gateway.
        file = await pair.other.files.create(file=b"any", purpose="user_data")
        await fill(keep_on(pair.opened.bus), [0] * (batch_store.MAX_KEPT - 3))
        for client in (pair.one, pair.other):
            with pytest.raises(BadRequestError, match="delete some"):
                await client.files.create(file=b"any", purpose="user_data")
            with pytest.raises(BadRequestError, match="delete some"):
                await client.batches.create(input_file_id=begun.input_file_id, endpoint=CHAT, completion_window="24h")
        pair.step(2)
        batch = await until_over(pair.one, begun)
        assert (batch.status, batch.request_counts.completed) == ("completed", 1)
        await pair.one.files.delete(file.id)
        await pair.one.files.create(file=b"x" * 100, purpose="user_data")


async def test_the_bytes_of_a_key_are_bounded() -> None:
    async with open_pair() as pair:
        await fill(keep_on(pair.opened.bus), [batch_store.KEY_BYTES - 400])
        with pytest.raises(BadRequestError, match="bytes"):
            await pair.one.files.create(file=b"x" * 401, purpose="user_data")
        await pair.one.files.create(file=b"x" * 400, purpose="user_data")


async def test_what_is_listed_goes_on_into_the_next_period_and_not_beyond() -> None:
    now, bus = 0.0, MemoryBus()
    logs = JobLogs(bus, Topics(), lambda: now)
    known = KeyList(logs, "key", "files", 100.0)
    for name, at in (("a", 10.0), ("b", 99.0), ("c", 101.0), ("b", 102.0)):
        now = at
        await known.add(name, name.encode(), at + 100.0, 5)
    assert find_listed(await known.read(), now) == {name: (name.encode(), 5) for name in "abc"}
    await known.add("a", b"", 0.0)
    assert list(find_listed(await known.read(), now)) == ["b", "c"]
    now = 202.0
    assert list(find_listed(await known.read(), now)) == []
    now = 350.0
    await logs.written.make_room("key", now)
    assert await bus.read(logs.topic(known.name(0))) == ()
    assert await known.read() == []


async def test_a_file_without_one_of_its_parts_is_not_read() -> None:
    bus = MemoryBus()
    kept = keep_on(bus)
    expires = int(kept.logs.clock()) + 9
    await kept.put(batches.File("file-a", len(TWO_PARTS), "", "batch", 0, expires), TWO_PARTS)
    assert await kept.read("file-a") == TWO_PARTS
    first, _, *rest = await bus.read(kept.logs.topic("file-a"))
    for entry in (first, *rest):
        await bus.append(kept.logs.topic("file-b"), entry.body, entry.properties)
    with pytest.raises(BusError):
        await kept.read("file-b")
