"""A request on a WebSocket asks for its stream to be kept: it is told the id and the numbers, and anybody reads on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse
from msgspec import structs

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.failing_llm import FailingLlm
from tests.flow.kept_streams import DEADLINE, MANY, Pair, open_keeping, open_pair, read_all
from tests.flow.narrow_gateway import digest_of, token_of
from tests.flow.open_gateway import ON_ANY_PORT
from tests.flow.socket_frames import PATH, Frame, answer, frame, whole
from tests.flow.test_kept_streams import list_events
from tests.until import until
from tg_base.config import ApiKey
from tg_gateway.access import Limits


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
    llm = CountingLlm()
    llm.step = asyncio.Semaphore(0)
    async with open_keeping(llm, Limits(background=1)) as http, http.ws_connect(PATH) as socket:
        await socket.send_json(asking(MANY))
        await until(lambda: len(llm.requests) == 1)
        await socket.send_json(asking("1") | {"id": "b"})
        await until(lambda: len(llm.requests) == 2)
        for _ in range(2):
            llm.step.release()
        async with asyncio.timeout(DEADLINE):
            told = {each["id"]: each for each in [await frame(socket), await frame(socket)]}
        assert ("offset" in told["a"], "offset" in told["b"]) == (True, False)
