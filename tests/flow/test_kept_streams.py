"""Streams that are kept: who leaves does not stop them, and any gateway goes on with them, for several readers."""

import asyncio
import json
import random
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse

from tests.fakes.counting_llm import CountingLlm, SteppedLlm, release
from tests.fakes.failing_llm import FailingLlm
from tests.flow.kept_streams import (
    DEADLINE,
    DOORS,
    KEEP,
    MANY,
    Reader,
    ask_chat,
    ask_native,
    begin,
    open_keeping,
    open_pair,
    read_all,
    resume,
)
from tests.flow.narrow_gateway import digest_of, token_of
from tests.flow.open_gateway import open_gateway
from tests.flow.socket_frames import PATH, Frame, answer, frame, whole
from tests.until import until
from tg_base.config import ApiKey, GatewayConfig
from tg_gateway.access import Limits

Asking = Callable[[str], tuple[str, dict[str, Any]]]
UNKEPT: Sequence[tuple[str, dict[str, Any]]] = (
    ("api/v1/text-completion", {"prompt": "1"}),
    ("v1/chat/completions", {"model": "counting", "messages": [{"role": "user", "content": "1"}]}),
    ("v1/completions", {"model": "counting", "prompt": "1", "stream": True}),
    ("v1/responses", {"model": "counting", "input": "1", "stream": True}),
    ("api/chat", {"model": "counting", "messages": [{"role": "user", "content": "1"}]}),
)
"""Answers that are not kept."""


async def status_of(http: ClientSession, path: str, **headers: str) -> tuple[int, str]:
    """The status and the body of a GET that ends at once."""
    async with asyncio.timeout(DEADLINE), http.get(path, headers=headers) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("asking", DOORS)
async def test_any_gateway_goes_on_and_all_readers_get_the_same(asking: Asking) -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        async with AsyncExitStack() as connection:
            first = await begin(connection, it.one, asking("6"))
            it.step(2)
            await first.until(b"1 ")
        # The first client has left. The others come while the model is at work, each with what it has.
        late = [
            await resume(stack, http, first.name, after, header=header)
            for http in (it.one, it.other)
            for after in (-1, first.numbers[-1])
            for header in (False, True)
        ]
        it.step(4)
        whole = await read_all(it.other, first.name)
        assert whole.startswith(first.events)
        for number, reader in enumerate(late):
            rest = await reader.until_end()
            assert rest == whole if number // 2 % 2 == 0 else first.events + rest == whole
        assert (len(it.llm.requests), it.llm.generated) == (1, 6)
        for http in (it.one, it.other):
            assert await read_all(http, first.name) == whole


@pytest.mark.parametrize("asking", DOORS)
async def test_a_reader_with_all_events_is_told_that_there_are_no_more(asking: Asking) -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        it.step(3)
        reader = await begin(stack, it.one, asking("3"))
        assert await reader.until_end() == await read_all(it.other, reader.name)
        last = reader.numbers[-1]
        assert reader.numbers == list(range(last + 1))
        path = f"v1/streams/{reader.name}"
        assert await status_of(it.other, path, **{"Last-Event-ID": str(last)}) == (204, "")
        status, body = await status_of(it.other, f"{path}?offset={last + 1}")
        assert status == 400
        assert f"event {last}:" in body


@pytest.mark.parametrize("asking", DOORS)
async def test_a_failure_is_the_last_event_of_every_reader(asking: Asking) -> None:
    async with open_pair(llm=FailingLlm()) as it, AsyncExitStack() as stack:
        reader = await begin(stack, it.one, asking("2"))
        it.step(2)
        whole = await reader.until_end()
        assert b"error" in whole.split(b"id: ")[-1]
        assert await read_all(it.other, reader.name) == whole
        last = str(reader.numbers[-1])
        assert (await status_of(it.other, f"v1/streams/{reader.name}", **{"Last-Event-ID": last}))[0] == 204


@pytest.mark.parametrize("asking", DOORS)
async def test_a_cancel_through_any_gateway_stops_the_model(asking: Asking) -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        reader = await begin(stack, it.one, asking(MANY))
        it.step(1)
        await reader.until(b"0 ")
        async with it.other.post(f"v1/streams/{reader.name}/cancel") as response:
            assert (response.status, await response.json()) == (200, {"stopped": reader.name})
        assert it.llm.stopped.is_set()
        it.step(10)
        whole = await reader.until_end()
        assert b"cancelled" in whole.split(b"id: ")[-1]
        assert await read_all(it.other, reader.name) == whole
        assert it.llm.generated == 1


async def test_what_is_not_there_is_refused() -> None:
    keys = tuple(ApiKey(name=name, sha256=digest_of(name), store=name != "none") for name in ("one", "other", "none"))
    bearer = {each.name: {"Authorization": f"Bearer {token_of(each.name)}"} for each in keys}
    config = GatewayConfig(port=0, drain=0.05, auth="on", keys=keys)
    async with open_pair(config) as it, AsyncExitStack() as stack:
        it.step(2)
        reader = await begin(stack, it.one, ask_chat("1"), **bearer["one"])
        await reader.until_end()
        path = f"v1/streams/{reader.name}"
        assert (await status_of(it.other, path, **bearer["one"]))[0] == 200
        unknown = await status_of(it.other, f"v1/streams/{reader.name[:-4]}0000", **bearer["one"])
        assert unknown[0] == 404
        for name in (reader.name, "resp_1", "x" * 5000, "..%2f", "ks-"):
            assert await status_of(it.other, f"v1/streams/{name}", **bearer["other"]) == unknown
        async with it.other.post(f"{path}/cancel", headers=bearer["other"]) as response:
            assert (response.status, await response.text()) == unknown
        for wrong in ("", "x", "-2", "1.5", "9" * 13, "0x1"):
            for each in ({"Last-Event-ID": wrong}, {}):
                status, body = await status_of(
                    it.other, path if each else f"{path}?offset={wrong}", **bearer["one"], **each
                )
                assert (status, "the id of the last event" in body) == (400, True)
        asked, wanted = ask_native("1")
        async with it.one.post(asked, json=wanted, headers=KEEP | bearer["none"]) as refused:
            assert (refused.status, "store = false" in await refused.text()) == (400, True)
    assert len(it.llm.requests) == 1


@pytest.mark.parametrize("period", ["", "10", "10 m", "1d", "0s", "25h", "86401s", "-1m", "1e3s", "9" * 5000 + "s"])
async def test_a_wrong_period_is_refused_and_no_model_asked(period: str) -> None:
    async with open_gateway() as it:
        for asking in DOORS:
            path, body = asking("1")
            async with it.http.post(path, json=body, headers={"X-Tokengrid-Keep": period}) as response:
                assert (response.status, "10m or 2h" in await response.text()) == (400, True)
        assert not it.llm.requests


@pytest.mark.parametrize(
    ("path", "body"),
    [*UNKEPT, ("v1/responses", {"model": "counting", "input": "1", "stream": True, "background": True})],
)
async def test_what_cannot_be_kept_is_refused_and_not_left_unkept(path: str, body: dict[str, Any]) -> None:
    async with open_gateway() as it:
        async with it.http.post(path, json=body, headers=KEEP) as response:
            assert (response.status, "X-Tokengrid-Keep" in await response.text()) == (400, True)
        assert not it.llm.requests


async def test_a_stream_whose_time_is_over_is_gone() -> None:
    async with open_pair() as it:
        path, body = ask_native("1")
        it.step(1)
        async with it.one.post(path, json=body, headers={"X-Tokengrid-Keep": "1s"}) as response:
            name = response.headers["X-Stream-Id"]
            await response.read()
        statuses = set[int]()
        async with asyncio.timeout(DEADLINE):
            while 410 not in statuses:
                statuses.add((await status_of(it.other, f"v1/streams/{name}"))[0])
        assert statuses <= {200, 410}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("api/v1/prompt", {"id": "text", "terms": {"a": "1", "b": "2"}, "streaming": True}),
        ("api/v1/prompt", {"id": "object", "terms": {"a": "1"}, "streaming": True}),
    ],
)
async def test_a_prompt_is_kept_too(path: str, body: dict[str, Any]) -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        reader = await begin(stack, it.one, (path, body))
        whole = await reader.until_end()
        assert whole.endswith(b"}\n\n")
        assert await read_all(it.other, reader.name) == whole


async def test_a_kept_stream_is_no_response() -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        it.step(1)
        reader = await begin(stack, it.one, ask_chat("1"))
        whole, path = await reader.until_end(), f"v1/responses/{reader.name}"
        for method, place in (
            ("GET", path),
            ("GET", f"{path}/input_items"),
            ("POST", f"{path}/cancel"),
            ("DELETE", path),
        ):
            async with it.other.request(method, place) as refused:
                assert (refused.status, "no response of this id" in await refused.text()) == (404, True)
        body = {"model": "counting", "input": "1", "previous_response_id": reader.name}
        async with it.other.post("v1/responses", json=body) as refused:
            code = (await refused.json())["error"]["code"]
            assert (refused.status, code) == (400, "previous_response_not_found")
        assert await read_all(it.one, reader.name) == whole


@pytest.mark.parametrize("asking", DOORS)
async def test_a_flow_keeps_what_can_be_kept(asking: Asking) -> None:
    async with open_keeping(CountingLlm()) as http:
        path, body = asking("2")
        async with http.post(path, json=body) as response:
            name = response.headers["X-Stream-Id"]
            kept = Reader(response)
            assert await kept.until_end() == await read_all(http, name)
        async with http.post(path, json=body, headers={"X-Tokengrid-Keep": "x"}) as response:
            assert response.status == 400
        for plain, asked in UNKEPT:
            async with http.post(plain, json=asked) as response:
                assert (response.status, response.headers["X-Stream-Id"][:3] == "ks-") == (200, False)


@pytest.mark.parametrize("limits", [Limits(background=1), Limits(all_background=1)])
async def test_a_stream_that_only_its_flow_keeps_is_sent_unkept_beyond_the_limits(limits: Limits) -> None:
    llm = SteppedLlm()
    async with open_keeping(llm, limits) as http, AsyncExitStack() as stack:
        kept = await begin(stack, http, ask_native("1"))
        path, body = ask_chat("1")
        plain = asyncio.create_task(stack.enter_async_context(http.post(path, json=body)))
        await until(lambda: len(llm.requests) == 2)
        async with http.post(path, json=body, headers={"X-Tokengrid-Keep": "10m"}) as refused:
            assert refused.status == 429
        release(llm.step, 2)
        unkept = Reader(await plain)
        assert (unkept.name[:3] == "ks-", await unkept.until_end()) == (False, b"")
        assert unkept.got.endswith(b"data: [DONE]\n\n")
        assert (await kept.until_end()).count(b"id: ") == 2


async def test_readers_are_bounded_and_the_first_is_not() -> None:
    async with open_pair(limits=Limits(followers=2)) as it, AsyncExitStack() as stack:
        first = await begin(stack, it.one, ask_native(MANY))
        it.step(1)
        await first.until(b"0 ")
        readers = [await resume(stack, it.one, first.name) for _ in range(2)]
        status, body = await status_of(it.one, f"v1/streams/{first.name}")
        assert (status, "too many" in body) == (429, True)
        async with it.other.post(f"v1/streams/{first.name}/cancel") as response:
            assert response.status == 200
        assert len({await each.until_end() for each in (first, *readers)}) == 1


async def test_a_position_of_the_future_is_refused_while_the_stream_runs() -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        reader = await begin(stack, it.one, ask_native(MANY))
        it.step(1)
        await reader.until(b"0 ")
        path = f"v1/streams/{reader.name}"
        for ahead in (1, 99_999_999):
            status, body = await status_of(it.other, f"{path}?offset={reader.numbers[-1] + ahead}")
            assert (status, "no event of your number yet" in body) == (400, True)
        async with it.one.post(f"{path}/cancel"):
            pass


async def read_in_turns(name: str, sessions: Sequence[ClientSession], draw: random.Random) -> bytes:
    """What a reader has in the end, who loses its connection after some events, again and again."""
    got, after = b"", -1
    while True:
        async with AsyncExitStack() as stack:
            reader = await resume(stack, draw.choice(sessions), name, after, header=draw.random() < 0.5)
            if reader.over:
                return got
            await reader.until_events(draw.randrange(1, 6))
            got, after = got + reader.events, max([after, *reader.numbers])


@pytest.mark.parametrize("asking", DOORS)
async def test_any_cuts_readers_and_positions_give_the_one_text(asking: Asking) -> None:
    words, draw = 40, random.Random()
    async with open_pair() as it, AsyncExitStack() as stack:
        first = await begin(stack, it.one, asking(str(words)))
        sessions = (it.one, it.other)
        readers = [asyncio.create_task(read_in_turns(first.name, sessions, draw)) for _ in range(4)]
        for _ in range(words):
            it.step(1)
            await asyncio.sleep(draw.random() / 50)
        texts = await asyncio.wait_for(asyncio.gather(*readers), DEADLINE)
        assert set(texts) == {await first.until_end()}
        assert len(it.llm.requests) == 1


def list_events(events: bytes) -> list[tuple[int, bytes]]:
    """The number and the data of each event."""
    return [(int(number), data) for number, data in re.findall(rb"id: ([0-9]+)\ndata: (.*)\n\n", events)]


async def attach(socket: ClientWebSocketResponse, stream: str, after: int | None = None) -> list[Frame]:
    """The messages of a stream on a socket, until the last."""
    await socket.send_json({"id": "a", "attach": stream} | ({} if after is None else {"offset": after}))
    return await whole(socket)


async def test_a_socket_attaches_and_what_it_gets_has_the_same_numbers() -> None:
    async with open_pair() as it, AsyncExitStack() as stack, it.other.ws_connect(PATH) as socket:
        first = await begin(stack, it.one, ask_native("5"))
        it.step(2)
        await first.until(b"1 ")
        await socket.send_json({"id": 7, "attach": first.name, "offset": first.numbers[0]})
        other = asyncio.create_task(whole(socket))
        it.step(3)
        told = await other
        events = [(number, json.loads(event)) for number, event in list_events(await first.until_end())]
        assert [(each["offset"], each["response"]) for each in told] == events[1:]
        assert {each["id"] for each in told} == {7}
        assert [each["complete"] for each in told] == [False] * (len(told) - 1) + [True]
        again = await attach(socket, first.name)
        assert [(each["offset"], each["response"]) for each in again] == events
        for after, text in ((events[-1][0], "all of it"), (events[-1][0] + 1, "none has your number")):
            (refused,) = await attach(socket, first.name, after)
            assert (refused["error"]["type"], text in refused["error"]["message"]) == ("bad-request", True)
        (unknown,) = await attach(socket, "ks-")
        assert unknown["error"]["type"] == "not-found"
        (wrong,) = await attach(socket, first.name, -2)
        assert wrong["error"]["type"] == "bad-request"
    assert len(it.llm.requests) == 1


async def test_a_socket_that_leaves_what_it_attached_to_does_not_stop_it() -> None:
    async with open_pair() as it, AsyncExitStack() as stack, it.other.ws_connect(PATH) as socket:
        first = await begin(stack, it.one, ask_native("3"))
        it.step(1)
        assert (await answer(socket, {"id": "a", "attach": first.name}))["offset"] == 0
        await socket.send_json({"id": "a", "cancel": True})
        assert (await frame(socket))["error"]["type"] == "cancelled"
        it.step(2)
        assert b"2 " in await first.until_end()


async def test_a_socket_is_told_why_a_stream_ended() -> None:
    async with open_pair(llm=FailingLlm()) as it, AsyncExitStack() as stack, it.other.ws_connect(PATH) as socket:
        first = await begin(stack, it.one, ask_native("1"))
        it.step(1)
        await first.until_end()
        *_, last = await attach(socket, first.name)
        assert (last["offset"], last["complete"], "error" in last) == (first.numbers[-1], True, True)
        chat = await begin(stack, it.one, ask_chat("1"))
        (refused,) = await attach(socket, chat.name)
        assert "of another protocol" in refused["error"]["message"]
