"""Streams of LMTP with a request_key that end early: cancelled, failed, refused, or left by a gateway that is dead."""

import asyncio
import json
import time

import pytest

from tests.doors.lmtp_pair import TOPICS, WHOLE, WORD, open_pair, read_tokens, told
from tests.doors.open_lmtp import MODEL, is_final
from tests.fakes.held_bus import HeldBus
from tests.fakes.token_llm import END
from tests.flow.raw_http import raw_connection
from tests.flow.socket_frames import masked, upgrade
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_doors.lmtp.item_writers import StreamForm
from tg_doors.lmtp.resumable import RESUMABLE_SECONDS, name_stream
from tg_gateway.access import Limits
from tg_gateway.app import RESUMABLE
from tg_gateway.dialects import RecordedEnd
from tg_gateway.jobs.log import CANCEL, HEAD, JobLog, kind_of, label_end, label_first, label_part
from tg_schema import encode
from tg_schema.errors import Timeout, Unavailable

ANYBODY = "anybody"


async def test_cancel_stops_the_model_from_any_gateway() -> None:
    async with open_pair() as it, it.connect() as client, it.connect(other=True) as other:
        await client.generate(1, [72] * 1000, max_tokens=1000, request_key="k")
        it.step(1)
        await read_tokens(client, 1)
        await other.send("RESUME", stream_id=5, request_key="k", after_seq=1)
        await other.send("CANCEL", stream_id=5)
        for each, stream in ((other, 5), (client, 1)):
            (ended,) = await each.stream(stream)
            assert ended["code"] == "cancelled"
        await asyncio.wait_for(it.llm.stopped.wait(), 10)
        assert it.llm.generated == 1
        await other.send("RESUME", stream_id=5, request_key="k")
        items = await other.stream(5)
        assert [each.get("token") for each in items] == [72, None]
        assert items[-1]["code"] == "cancelled"


async def test_a_cancel_that_is_sent_again_and_again_is_kept_once() -> None:
    async with open_pair() as it, it.connect() as client:
        await client.generate(1, WORD, request_key="k")
        it.step(1)
        await read_tokens(client, 1)
        for _ in range(100):
            await client.send("CANCEL", stream_id=1)
        assert (await client.stream(1))[-1]["code"] == "cancelled"
        kinds = [kind_of(entry) for entry in await it.opened.bus.read(kept("k"))]
        assert kinds.count(CANCEL) == 1


async def test_a_stream_can_be_resumed_for_an_hour() -> None:
    async with open_pair() as it, it.connect() as client:
        await client.generate(1, WORD, request_key="k")
        it.step(1)
        await read_tokens(client, 1)
        # While it is made, its log lasts.
        begun = JobLog(await it.opened.bus.read(kept("k"))).expires - RESUMABLE_SECONDS - Limits().run
        # The gateways' common clock may differ from this process's.
        assert begun == pytest.approx(time.time(), abs=60)


async def test_a_cancel_while_it_begins() -> None:
    async with open_pair() as it, it.connect() as client:
        await client.generate(1, [72] * 10, request_key="k")
        await client.send("CANCEL", stream_id=1)
        (ended,) = await client.stream(1)
        assert ended["code"] == "cancelled"
        await until(lambda: not it.llm.started.is_set() or it.llm.stopped.is_set())
        assert it.llm.generated == 0


@pytest.mark.parametrize("begun", [True, False])
async def test_a_cancel_right_before_its_socket_closes_stops_the_model(*, begun: bool) -> None:
    bus = HeldBus(MemoryBus())
    async with open_pair(bus=bus) as it, raw_connection(it.opened.address) as raw:
        await upgrade(raw, path="/lmtp")
        body = {"model": MODEL, "prompt": [72] * 9, "max_tokens": 9, "stream_id": 1, "request_key": "k"}
        raw.send(masked(b"GENERATE " + json.dumps(body).encode()))
        if begun:
            bus.open.set()
            it.step(1)
            await raw.until(b"}]")
        else:
            await until(lambda: bus.appending == 1)
        raw.send(masked(b'CANCEL {"stream_id":1}') + masked(b"", first=0x88))
        # Our close: both have been read.
        await raw.until(b"\x88")
        bus.open.set()
        if begun:
            await asyncio.wait_for(it.llm.stopped.wait(), 10)
        assert it.llm.generated == begun
        async with it.connect(other=True) as client:
            await client.send("RESUME", stream_id=5, request_key="k")
            assert (await client.stream(5))[-1]["code"] == "cancelled"


async def test_a_stream_that_failed_behind_an_item_keeps_its_key_and_fails_alike_for_all() -> None:
    async with open_pair() as it, it.connect() as client, it.connect(other=True) as other:
        await client.generate(1, WORD, request_key="k", deadline_ms=300)
        it.step(1)
        items = await client.stream(1)
        assert (items[-1]["code"], "generate it again with another" in items[-1]["error"]) == ("timeout", True)
        await other.send("RESUME", stream_id=1, request_key="k")
        assert await other.stream(1) == items
        await other.generate(1, WORD, request_key="k")
        assert (await other.stream(1))[-1]["code"] == "timeout"
        assert len(it.llm.requests) == 1


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_stream_that_failed_before_its_first_item_frees_its_key(*, elsewhere: bool) -> None:
    async with open_pair() as it, it.connect() as client, it.connect(other=elsewhere) as again:
        it.step(100)
        it.llm.failing = (Timeout("late"), Timeout("again"))
        await client.generate(1, WORD, request_key="k")
        (failed,) = await client.stream(1)
        assert (failed["code"], failed["retryable"], failed["error"]) == ("timeout", True, "late")
        # Who only reads on begins nothing.
        await again.send("RESUME", stream_id=2, request_key="k")
        assert (await again.stream(2))[0]["code"] == "timeout"
        await again.generate(3, WORD, request_key="k")
        assert (await again.stream(3))[0]["error"] == "again"
        for each in (client, again):
            await each.generate(4, WORD, request_key="k")
            assert told(await each.stream(4)) == WHOLE
        await client.send("RESUME", stream_id=5, request_key="k")
        assert told(await client.stream(5)) == WHOLE
        assert len(it.llm.requests) == 3, "two failed, and the third is whole"


async def test_a_beginning_that_seemed_to_fail_and_arrived_does_not_block_its_key() -> None:
    bus = HeldBus(MemoryBus())
    bus.open.set()
    bus.losing = 1
    async with open_pair(bus=bus, limits=Limits(silence=0.2)) as it, it.connect() as client:
        it.step(100)
        await client.generate(1, WORD, request_key="k")
        (failed,) = await client.stream(1)
        assert (failed["code"], failed["retryable"]) == ("bus", True)
        # Nobody writes this log: whoever reads it on finds that, and frees the key.
        await client.generate(2, WORD, request_key="k")
        (gone,) = await client.stream(2)
        assert (gone["code"], gone["retryable"]) == ("unavailable", True)
        assert "another key" not in gone["error"]
        await client.generate(3, WORD, request_key="k")
        assert told(await client.stream(3)) == WHOLE


async def test_a_gateway_that_was_taken_for_dead_adds_nothing_to_what_has_its_key_now() -> None:
    form = encode(StreamForm("ids", 9, 1))
    record = b'{"response":"%c","tokens":[{"id":%d,"text":"%c","logprob":-1.0}]}\n'
    async with open_pair(limits=Limits(silence=0.2)) as it, it.connect() as client:
        bus, owner = it.opened.bus, f"{RESUMABLE}{ANYBODY}"
        await bus.append(kept("k"), form, label_first(HEAD, owner, 1e12, "first"))
        await client.send("RESUME", stream_id=1, request_key="k")
        assert (await client.stream(1))[0]["code"] == "unavailable"
        await bus.append(kept("k"), form, label_first(HEAD, owner, 1e12, "second", over="first"))
        for claim, token in (("first", 65), ("second", 72)):
            await bus.append(kept("k"), record % (token, token, token), label_part(0, claim=claim))
        await client.send("RESUME", stream_id=2, request_key="k")
        item, _ = await client.stream(2)
        assert item["token"] == 72


async def test_a_request_that_is_refused_leaves_its_key_free() -> None:
    async with open_pair(limits=Limits(background=1)) as it, it.connect() as client:
        await client.generate(1, WORD, request_key="one")
        it.step(1)
        await read_tokens(client, 1)
        await client.generate(2, [72], request_key="two")
        (refused,) = await client.stream(2)
        assert (refused["code"], refused["retryable"]) == ("rate-limited", True)
        it.step(6)
        await client.stream(1)
        await client.generate(2, [72], request_key="two")
        assert is_final((await client.stream(2))[-1])


def kept(request_key: str) -> str:
    return TOPICS.kept(name_stream(ANYBODY, request_key))


async def test_what_a_dead_gateway_left_ends_with_an_error_and_an_expired_key_is_free() -> None:
    form = encode(StreamForm("ids", 9, 1))
    record = b'{"response":"H","tokens":[{"id":72,"text":"H","logprob":-1.0}]}\n'
    async with open_pair(limits=Limits(silence=0.2)) as it, it.connect() as client:
        bus, owner = it.opened.bus, f"{RESUMABLE}{ANYBODY}"
        for name, expires in (("dead", 1e12), ("failed", 1e12), ("cut", 1e12), ("old", 1.0)):
            await bus.append(kept(name), form, label_first(HEAD, owner, expires))
            # The gateway died within the second record.
            await bus.append(kept(name), record + record[:9], label_part(0))
        await bus.append(kept("failed"), encode(RecordedEnd(1, Unavailable("away").record)), label_end("ended"))
        await bus.append(kept("cut"), encode(RecordedEnd(1)), label_end("ended", cut=True))
        for name, code in (("dead", "unavailable"), ("failed", "unavailable"), ("cut", "too-large")):
            await client.send("RESUME", stream_id=1, request_key=name)
            item, ended = await client.stream(1)
            assert (item["token"], item["seq"], ended["code"]) == (72, 1, code)
        await client.send("RESUME", stream_id=1, request_key="old")
        assert (await client.stream(1))[0]["code"] == "not-found"
        it.step(1)
        await client.generate(1, [72], request_key="old")
        assert told(await client.stream(1)) == [(1, 72, None), (2, END, "stop")]
