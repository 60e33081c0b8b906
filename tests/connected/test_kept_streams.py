"""Streams that are kept, over a real broker: cut, killed gateways, other gateways; one text, and one call."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.connected.pipeline import Pipeline
from tests.connected.test_responses_made_apart import until_known
from tests.fakes.live_openai import MODEL, PIECE, LiveOpenAi, told
from tests.flow.kept_streams import Reader, begin, read_all, resume
from tests.flow.test_listed_streams import follow, ids_of

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

STREAMS = 12


def ask(flow: str, number: int) -> tuple[str, dict[str, Any]]:
    """One stream, by any of the doors in turn."""
    turns = [{"role": "user", "content": f"p{number}"}]
    doors: Sequence[tuple[str, dict[str, Any]]] = (
        (f"api/v1/flow/{flow}/service/text-completion", {"prompt": f"p{number}", "streaming": True}),
        ("v1/chat/completions", {"model": MODEL, "messages": turns, "stream": True}),
        ("v1/messages", {"model": MODEL, "messages": turns, "stream": True, "max_tokens": 1000}),
    )
    return doors[number % len(doors)]


def text_of(events: bytes) -> str:
    """What the model has said."""
    return "".join(f"<{number}.{place}>" for number, place in PIECE.findall(events.decode()))


async def until_said(reader: Reader, pieces: int) -> None:
    """Until a reader has this many more pieces of the text."""
    await reader.until_true(lambda: len(PIECE.findall(reader.events.decode())) >= pieces)


async def test_a_cut_stream_goes_on_through_another_gateway(live_model: LiveOpenAi, line: Pipeline) -> None:
    """The gateway that makes it lives; its clients leave it, and read on anywhere. The other one lists the streams."""
    one, other, _ = await asyncio.gather(line.start("gateway"), line.start("gateway"), line.start("text-completion"))
    draw = random.Random()
    async with ClientSession(one.url) as first, ClientSession(other.url) as second, AsyncExitStack() as followed:
        auditor = await follow(followed, second)

        async def read_in_turns(number: int) -> tuple[str, bytes, int]:
            async with AsyncExitStack() as stack:
                reader = await begin(stack, first, ask(line.flow, number))
                await until_said(reader, draw.randrange(1, 4))
            name, got, last = reader.name, reader.events, reader.numbers[-1]
            for _ in range(3):
                async with AsyncExitStack() as stack:
                    http = draw.choice((first, second))
                    reader = await resume(stack, http, name, last, header=draw.random() < 0.5)
                    await until_said(reader, draw.randrange(1, 4))
                got, last = got + reader.events, reader.numbers[-1]
            return name, got, last

        streams = await asyncio.gather(*map(read_in_turns, range(STREAMS)))
        await auditor.until_true(lambda: len(ids_of(auditor)) == STREAMS)
        assert set(ids_of(auditor)) == {name for name, _, _ in streams}
        live_model.finish.set()
        for name, got, last in streams:
            whole = got + await read_all(second, name, last)
            told(text_of(whole), whole=True)
            assert whole == await read_all(first, name) == await read_all(second, name)
    assert [len(live_model.of(f"p{number}")) for number in range(STREAMS)] == [1] * STREAMS


async def test_no_stream_stops_with_its_gateway(live_model: LiveOpenAi, line: Pipeline) -> None:
    """It is killed in mid-stream; a process of the part `jobs` makes the streams."""
    await asyncio.gather(line.start("jobs"), line.start("text-completion"))
    one, other = await asyncio.gather(line.start("gateway"), line.start("gateway"))
    await asyncio.gather(*(until_known(gateway, line.flow) for gateway in (one, other)))
    async with AsyncExitStack() as stack, ClientSession(other.url) as second:
        first = await stack.enter_async_context(ClientSession(one.url))
        begun = [await begin(stack, first, ask(line.flow, number)) for number in range(STREAMS)]
        await asyncio.gather(*(until_said(reader, 2) for reader in begun))
        one.process.kill()
        assert await one.stopped(15) == -9
        rests = [await resume(stack, second, reader.name, reader.numbers[-1]) for reader in begun]
        await asyncio.gather(*(until_said(reader, 2) for reader in rests))
        live_model.finish.set()
        for reader, rest in zip(begun, rests, strict=True):
            whole = reader.events + await rest.until_end()
            told(text_of(whole), whole=True)
            assert await read_all(second, reader.name) == whole
    assert [len(live_model.of(f"p{number}")) for number in range(STREAMS)] == [1] * STREAMS


async def test_a_cancel_through_another_gateway_stops_the_model(live_model: LiveOpenAi, line: Pipeline) -> None:
    one, other, _ = await asyncio.gather(line.start("gateway"), line.start("gateway"), line.start("text-completion"))
    async with AsyncExitStack() as stack, ClientSession(one.url) as first, ClientSession(other.url) as second:
        reader = await begin(stack, first, ask(line.flow, 0))
        await until_said(reader, 1)
        async with second.post(f"v1/streams/{reader.name}/cancel") as response:
            assert (response.status, await response.json()) == (200, {"stopped": reader.name})
        await live_model.until(lambda: live_model.of("p0")[0].left.is_set(), 10)
        whole = await reader.until_end()
        assert b"cancelled" in whole.split(b"id: ")[-1]
        assert await read_all(second, reader.name) == whole
