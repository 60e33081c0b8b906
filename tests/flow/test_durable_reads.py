"""Other ways to read kept streams: the Durable Streams protocol, and the WebSocket that began one."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse
from msgspec import structs

from tests.fakes.counting_llm import CountingLlm, SteppedLlm, release
from tests.fakes.failing_llm import FailingLlm
from tests.flow.kept_streams import (
    DEADLINE,
    DOORS,
    MANY,
    Pair,
    ask_chat,
    ask_native,
    begin,
    open_keeping,
    open_pair,
    read_all,
)
from tests.flow.narrow_gateway import digest_of, token_of
from tests.flow.open_gateway import ON_ANY_PORT
from tests.flow.socket_frames import PATH, Frame, answer, frame, whole
from tests.flow.test_kept_streams import list_events
from tests.until import until
from tg_base.config import ApiKey
from tg_gateway.access import Limits
from tg_gateway.dialects.native.durable_reads import BEGINNING

Asking = Callable[[str], tuple[str, dict[str, Any]]]
JSON = {"Accept": "application/json"}


async def get(
    http: ClientSession, name: str, *, status: int = 200, **query: str
) -> tuple[Mapping[str, str], list[Any]]:
    """One read: its headers, and its values."""
    async with asyncio.timeout(DEADLINE), http.get(f"v1/streams/{name}", params=query, headers=JSON) as response:
        assert response.status == status, await response.text()
        return response.headers, await response.json() if status == 200 else []


async def follow(
    http: ClientSession, name: str, offset: str, *, until: int, began: asyncio.Event | None = None
) -> tuple[list[Any], list[dict[str, Any]]]:
    """The values and the controls that come, until so many values or the end; `began` is set at the first control."""
    values, controls, query = list[Any](), list[dict[str, Any]](), {"offset": offset, "live": "sse"}
    async with asyncio.timeout(DEADLINE), http.get(f"v1/streams/{name}", params=query) as response:
        assert response.content_type == "text/event-stream"
        kind = b""
        async for line in response.content:
            if line.startswith(b"event: "):
                kind = line[7:].strip()
            elif line.startswith(b"data: ") and kind == b"data":
                values += json.loads(line[6:])
            elif line.startswith(b"data: "):
                controls.append(json.loads(line[6:]))
                if began is not None:
                    began.set()
                if len(values) >= until:
                    break
    return values, controls


async def values_of(http: ClientSession, name: str) -> list[Any]:
    """What the events of the stream have, in the order in which its other readers get them."""
    lines = [line[6:] for line in (await read_all(http, name)).splitlines() if line.startswith(b"data: ")]
    return [json.loads(line) if line != b"[DONE]" else "[DONE]" for line in lines]


@pytest.mark.parametrize("asking", DOORS)
async def test_all_ways_of_reading_have_the_same_events(asking: Asking) -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        first = await begin(stack, it.one, asking("4"))
        it.step(2)
        await first.until(b"1 ")
        headers, early = await get(it.other, first.name, offset="-1")
        assert (headers["Stream-Up-To-Date"], headers.get("Stream-Closed")) == ("true", None)
        following = asyncio.create_task(follow(it.other, first.name, "-1", until=1000))
        it.step(2)
        await first.until_end()
        values = await values_of(it.one, first.name)
        assert values[: len(early)] == early
        followed, controls = await following
        assert followed == values
        assert controls[-1]["streamClosed"] is True
        assert [each["streamNextOffset"] for each in controls] == sorted(each["streamNextOffset"] for each in controls)
        headers, rest = await get(it.other, first.name, offset=headers["Stream-Next-Offset"])
        assert early + rest == values
        assert (headers["Stream-Closed"], headers["Stream-Up-To-Date"]) == ("true", "true")
        assert (await get(it.other, first.name))[1] == values
        for offset in ("-1", BEGINNING):
            assert (await get(it.other, first.name, offset=offset))[1] == values


async def test_a_long_poll_waits_for_the_next_event_and_tells_the_end() -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        first = await begin(stack, it.one, ask_chat("2"))
        it.step(1)
        await first.until(b"0 ")
        headers, _ = await get(it.other, first.name)
        offset = headers["Stream-Next-Offset"]
        polling = asyncio.create_task(get(it.other, first.name, offset=offset, live="long-poll", cursor="7"))
        tailing = asyncio.create_task(get(it.one, first.name, offset="now", live="long-poll"))
        done, _ = await asyncio.wait([polling, tailing], timeout=0.3)
        assert not done
        it.step(1)
        (headers, values), (now, latest) = await polling, await tailing
        assert headers["Stream-Cursor"] == "8"
        assert now["Stream-Cursor"] == "1"
        assert values == latest != []
        await first.until_end()
        while "Stream-Closed" not in headers:
            headers, more = await get(it.other, first.name, offset=headers["Stream-Next-Offset"])
            values += more
        assert values[-1] == "[DONE]"
        headers, _ = await get(it.other, first.name, offset=headers["Stream-Next-Offset"], live="long-poll", status=204)
        assert headers["Stream-Closed"] == "true"
        for query, status in (({}, 200), ({"live": "long-poll"}, 204)):
            headers, values = await get(it.other, first.name, offset="now", status=status, **query)
            assert (headers["Stream-Closed"], values) == ("true", [])


async def test_a_stream_without_events_is_open_and_empty() -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        first = await begin(stack, it.one, ask_native("1"))
        headers, values = await get(it.other, first.name)
        assert (values, headers["Stream-Next-Offset"], headers["Stream-Up-To-Date"]) == ([], BEGINNING, "true")
        assert "Stream-Closed" not in headers
        began = asyncio.Event()
        following = asyncio.create_task(follow(it.other, first.name, "now", until=1, began=began))
        await asyncio.wait_for(began.wait(), DEADLINE)
        it.step(1)
        values, controls = await following
        assert values[0]["response"] == "0 "
        assert controls[0] == {"streamNextOffset": BEGINNING, "streamCursor": "1", "upToDate": True}


async def test_the_event_of_a_failure_is_the_last_one() -> None:
    async with open_pair(llm=FailingLlm()) as it, AsyncExitStack() as stack:
        first = await begin(stack, it.one, ask_native("1"))
        it.step(1)
        await first.until_end()
        headers, values = await get(it.other, first.name)
        assert values[-1]["error"]["type"] == "incomplete-stream"
        assert "Stream-Up-To-Date" not in headers
        headers, values = await get(it.other, first.name, offset=headers["Stream-Next-Offset"])
        assert (values, headers["Stream-Closed"]) == ([], "true")


async def test_a_reader_that_knows_an_answer_gets_304_until_it_changes() -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        first = await begin(stack, it.one, ask_native("1"))
        headers, _ = await get(it.other, first.name)
        known, path = JSON | {"If-None-Match": headers["ETag"]}, f"v1/streams/{first.name}"
        async with it.other.get(path, headers=known) as response:
            assert (response.status, await response.read()) == (304, b"")
        it.step(1)
        await first.until_end()
        async with it.other.get(path, headers=known) as response:
            assert response.status == 200
            assert response.headers["ETag"] != headers["ETag"]


async def test_wrong_reads_are_refused_and_events_come_to_all_others() -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        first = await begin(stack, it.one, ask_native("1"))
        it.step(1)
        await first.until_end()
        for query in (
            {"live": "sse"},
            {"live": "yes", "offset": "-1"},
            {"offset": ""},
            {"offset": "a,b"},
            {"offset": "99"},
        ):
            await get(it.other, first.name, status=400, **query)
        await get(it.other, "ks-0-00", status=404)
        for accept in ("*/*", "text/event-stream", "application/json, text/plain, */*", None):
            headers = {} if accept is None else {"Accept": accept}
            async with it.other.get(f"v1/streams/{first.name}", headers=headers) as response:
                assert response.content_type == "text/event-stream"
                assert await response.read() == first.events


@pytest.mark.parametrize("seed", range(3))
async def test_any_way_of_reading_on_gets_each_event_once(seed: int) -> None:
    draw = random.Random(seed)
    async with open_pair() as it, AsyncExitStack() as stack:
        first = await begin(stack, it.one, draw.choice(DOORS)("20"))
        offset, values, ended = BEGINNING, list[Any](), False
        for _ in range(100):
            http, how = draw.choice((it.one, it.other)), draw.choice(("catch-up", "long-poll", "sse"))
            # At least one event follows, or the end.
            it.step(1 + draw.randrange(3))
            if how == "sse":
                more, controls = await follow(http, first.name, offset, until=1)
                offset, ended = controls[-1]["streamNextOffset"], controls[-1].get("streamClosed", False)
            else:
                query = {"offset": offset} | ({} if how == "catch-up" else {"live": "long-poll"})
                async with http.get(f"v1/streams/{first.name}", params=query, headers=JSON) as read:
                    more = await read.json() if read.status == 200 else []
                    offset, ended = read.headers["Stream-Next-Offset"], "Stream-Closed" in read.headers
            values += more
            if ended:
                break
        assert ended
        assert values == await values_of(it.one, first.name)


def asking(prompt: str, **more: Any) -> Frame:
    """A request that the model answers with so many words."""
    return {"id": "a", "service": "text-completion", "request": {"prompt": prompt, "streaming": True}, **more}


@asynccontextmanager
async def begun(it: Pair, words: str = MANY) -> AsyncIterator[tuple[ClientWebSocketResponse, str]]:
    """A socket with a stream that is kept, and the stream's id. The model has said nothing yet."""
    async with it.one.ws_connect(PATH) as socket:
        told = await answer(socket, asking(words, keep="10m"))
        yield socket, told["stream"]


async def read_events(http: ClientSession, name: str) -> list[Any]:
    """All events of a stream, as HTTP tells them."""
    return [json.loads(data) for _, data in list_events(await read_all(http, name))]


async def test_the_id_comes_at_once_and_any_gateway_goes_on() -> None:
    async with open_pair() as it:
        async with begun(it, "4") as (socket, name):
            first = list[Frame]()
            for _ in range(2):
                it.step(1)
                first.append(await frame(socket))
        # The socket is closed, and the model goes on.
        it.step(2)
        async with it.other.ws_connect(PATH) as other:
            await other.send_json({"id": 7, "attach": name, "offset": first[-1]["offset"]})
            rest = await whole(other)
        told = [*first, *rest]
        assert [each["offset"] for each in told] == list(range(len(told)))
        assert [each.get("stream") for each in told] == [name, *[None] * (len(told) - 1)]
        assert "".join(each["response"]["response"] for each in told) == "0 1 2 3 "
        assert await read_events(it.other, name) == [each["response"] for each in told]
        assert len(it.llm.requests) == 1


async def test_a_cancel_stops_the_model() -> None:
    async with open_pair() as it, begun(it) as (socket, name):
        it.step(1)
        assert (await frame(socket))["offset"] == 0
        await socket.send_json({"id": "a", "cancel": True})
        last = await frame(socket)
        assert (last["error"]["type"], last["offset"], last["complete"]) == ("cancelled", 1, True)
        assert it.llm.stopped.is_set()
        assert b"cancelled" in await read_all(it.other, name)


async def test_a_failure_is_told_once_and_has_a_number() -> None:
    async with open_pair(llm=FailingLlm()) as it, begun(it, "2") as (socket, name):
        it.step(2)
        *_, last = await whole(socket)
        assert (last["complete"], "error" in last) == (True, True)
        assert last["offset"] == list_events(await read_all(it.other, name))[-1][0]
        # Nothing of this request follows.
        assert (await answer(socket, {"id": "b", "attach": "ks-"}))["id"] == "b"


@pytest.mark.parametrize("period", ["", "10", "0s", "25h", "9" * 5000 + "s"])
async def test_a_wrong_period_is_refused_and_no_model_asked(period: str) -> None:
    async with open_pair() as it, it.one.ws_connect(PATH) as socket:
        told = await answer(socket, asking("1", keep=period))
        assert (told["error"]["type"], "10m or 2h" in told["error"]["message"]) == ("bad-request", True)
        assert not it.llm.requests


async def test_what_cannot_be_kept_is_refused() -> None:
    keys = tuple(ApiKey(name=name, sha256=digest_of(name), store=name != "none") for name in ("one", "none"))
    config = structs.replace(ON_ANY_PORT, auth="on", keys=keys)
    async with open_pair(config, limits=Limits(background=1)) as it, it.one.ws_connect(PATH) as socket:
        whole_answer = asking("1", keep="10m") | {"request": {"prompt": "1"}}
        for name, request, kind in (
            ("none", asking("1", keep="10m"), "bad-request"),
            ("one", whole_answer, "bad-request"),
            ("one", asking(MANY, keep="10m"), None),
            ("one", asking("1", keep="10m") | {"id": "b"}, "rate-limited"),
        ):
            await answer(socket, {"type": "auth", "token": token_of(name)})
            told = await answer(socket, request)
            assert (told.get("error", {}).get("type"), "stream" in told) == (kind, kind is None)


async def test_a_flow_keeps_and_a_client_that_did_not_ask_gets_records_alone() -> None:
    async with open_keeping(CountingLlm()) as http, AsyncExitStack() as stack:
        socket = await stack.enter_async_context(http.ws_connect(PATH))
        await socket.send_json(asking("2"))
        told = await whole(socket)
        assert all("response" in each for each in told)
        assert await read_events(http, told[0]["stream"]) == [each["response"] for each in told]


async def test_beyond_the_limits_a_flow_keeps_nothing() -> None:
    llm = SteppedLlm()
    async with open_keeping(llm, Limits(background=1)) as http, http.ws_connect(PATH) as socket:
        await socket.send_json(asking(MANY))
        await until(lambda: len(llm.requests) == 1)
        await socket.send_json(asking("1") | {"id": "b"})
        await until(lambda: len(llm.requests) == 2)
        release(llm.step, 2)
        async with asyncio.timeout(DEADLINE):
            told = {each["id"]: each for each in [await frame(socket), await frame(socket)]}
        assert ("offset" in told["a"], "offset" in told["b"]) == (True, False)
