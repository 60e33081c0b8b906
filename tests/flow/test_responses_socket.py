"""The Responses API on its WebSocket, with the SDK's own client: lanes side by side, cancels, errors, ends."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse

from tests.fakes.counting_llm import CountingLlm, SteppedLlm, release
from tests.fakes.turns_llm import Turn
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.open_responses import MODEL, open_responses
from tests.flow.responses_stream import ENDINGS, check_stream
from tg_base.config import ApiKey, GatewayConfig
from tg_base.llm import LlmChunk
from tg_gateway.dialects.responses.last_response import MAX_CONVERSATION_BYTES
from tg_schema import TextPart, ToolCall, ToolCallDelta
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import IncompleteStream

PATH = "/v1/responses"
KEY = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest(), requests_per_minute=1)
LOCKED = GatewayConfig(port=0, drain=0.05, keys=(KEY,))


@asynccontextmanager
async def connected(llm: CountingLlm | None = None) -> AsyncIterator[tuple[Opened, ClientWebSocketResponse]]:
    async with open_gateway(llm=llm) as it, it.http.ws_connect(PATH) as socket:
        yield it, socket


async def receive(socket: ClientWebSocketResponse) -> dict[str, Any]:
    return dict(json.loads(await socket.receive_str(timeout=5)))


async def create(socket: ClientWebSocketResponse, **fields: Any) -> None:
    await socket.send_str(json.dumps({"type": "response.create", "model": MODEL} | fields))


async def until_end(socket: ClientWebSocketResponse) -> list[dict[str, Any]]:
    events = [await receive(socket)]
    while events[-1]["type"] not in ENDINGS:
        events.append(await receive(socket))
    return events


async def test_the_sdk_asks_again_and_again_on_one_socket() -> None:
    async with open_responses(("Hel", "lo"), ("Bye",)) as it, it.client.responses.connect() as connection:
        texts = []
        for words in ("hi", "and now?"):
            await connection.response.create(model=MODEL, input=words, store=False)
            async for event in connection:
                if event.type == "response.completed":
                    texts.append(event.response.output_text)
                    break
        assert texts == ["Hello", "Bye"]
        assert [request.prompt for request in it.llm.requests] == ["hi", "and now?"]


async def test_the_sdk_reads_an_error() -> None:
    async with open_responses(("Hello",)) as it, it.client.responses.connect() as connection:
        await connection.response.create(model="nobody", input="hi", stream_id="a")
        event: Any = await connection.recv()
        assert (event.type, event.status, event.stream_id) == ("error", 404, "a")
        assert (event.error.code, event.error.param) == ("model_not_found", "model")


async def test_lanes_side_by_side() -> None:
    async with connected() as (_, socket):
        for lane in ("a", "b", None):
            await create(socket, input="3", **({"stream_id": lane} if lane else {}))
        lanes: dict[str | None, list[dict[str, Any]]] = {}
        while [events[-1]["type"] for events in lanes.values()] != ["response.completed"] * 3:
            event = await receive(socket)
            lanes.setdefault(event.pop("stream_id", None), []).append(event)
    texts = {lane: check_stream(events)["output"][0]["content"][0]["text"] for lane, events in lanes.items()}
    assert texts == {"a": "0 1 2 ", "b": "0 1 2 ", None: "0 1 2 "}


@pytest.mark.parametrize("lane", [{}, {"stream_id": "a"}])
async def test_requests_of_a_lane_come_one_after_the_other(lane: dict[str, str]) -> None:
    llm = SteppedLlm()
    async with connected(llm) as (_, socket):
        for number in (1, 2, 3):
            await create(socket, input=str(number), **lane)
        # One that is wrong has its answer in its place, and ends none of the others.
        await create(socket, input="4", previous_response_id="resp_unknown", **lane)
        await create(socket, input="5", **lane)
        await llm.started.wait()
        release(llm.step, 11)
        texts = [check_stream(await until_end(socket))["output"][0]["content"][0]["text"] for _ in range(3)]
        assert texts == ["0 ", "0 1 ", "0 1 2 "]
        refused = await receive(socket)
        assert (refused["type"], refused["error"]["code"]) == ("error", "previous_response_not_found")
        last = check_stream(await until_end(socket))
        assert last["output"][0]["content"][0]["text"] == "0 1 2 3 4 "
        await create(socket, input="1", previous_response_id=last["id"], **lane)
        llm.step.release()
        assert check_stream(await until_end(socket))["status"] == "completed"


async def test_a_request_that_waits_goes_on_from_the_one_before() -> None:
    go = asyncio.Event()
    async with open_responses(("Hel", go, "lo"), ("Bye",)) as it, it.opened.http.ws_connect(PATH) as socket:
        await create(socket, input="hi")
        name = (await receive(socket))["response"]["id"]
        await create(socket, input="and?", previous_response_id=name)
        await socket.send_str(json.dumps({"type": "nothing", "stream_id": "b"}))
        # Messages are taken in their order: the second request waits by now.
        while (await receive(socket)).get("stream_id") != "b":
            pass
        go.set()
        for text in ("Hello", "Bye"):
            assert (await until_end(socket))[-1]["response"]["output"][0]["content"][0]["text"] == text
        assert [turn.text for turn in it.llm.requests[-1].messages] == ["hi", "Hello", "and?"]


async def test_a_request_that_waits_asks_for_what_its_name_meant_when_it_came() -> None:
    llm = SteppedLlm()
    named = GatewayConfig(port=0, drain=0.05, aliases={"nick": llm.model})
    async with open_gateway(named, llm=llm) as it, it.http.ws_connect(PATH) as socket:
        for _ in range(2):
            await create(socket, input="1", model="nick")
        await socket.send_str(json.dumps({"type": "nothing", "stream_id": "b"}))
        # Messages are taken in their order: the second request waits by now.
        while (await receive(socket)).get("stream_id") != "b":
            pass
        it.gateway.prepare(GatewayConfig(port=0, drain=0.05))()
        for _ in range(2):
            llm.step.release()
            assert (await until_end(socket))[-1]["type"] == "response.completed"


async def test_a_cancel_ends_what_runs_and_the_next_one_begins() -> None:
    llm = SteppedLlm()
    async with connected(llm) as (_, socket):
        await create(socket, input="1000")
        await llm.started.wait()
        await create(socket, input="2")
        await socket.send_str(json.dumps({"type": "response.cancel"}))
        cancelled = await receive(socket)
        assert (cancelled["type"], cancelled["status"]) == ("error", 499)
        llm.step.release()
        llm.step.release()
        assert check_stream(await until_end(socket))["output"][0]["content"][0]["text"] == "0 1 "
        # What waits when the socket closes is never begun.
        llm.started.clear()
        for words in ("1000", "2"):
            await create(socket, input=words)
        await llm.started.wait()
        await socket.close()
        await asyncio.wait_for(llm.stopped.wait(), 5)
        assert [request.prompt for request in llm.requests] == ["1000", "2", "1000"]


@pytest.mark.parametrize("lane", [{}, {"stream_id": "a"}])
async def test_a_cancel_stops_the_model_and_leaves_the_socket(lane: dict[str, str]) -> None:
    llm = SteppedLlm(steps=1)
    async with connected(llm) as (_, socket):
        await create(socket, input="1000", **lane)
        events = [await receive(socket)]
        while events[-1]["type"] != "response.output_text.delta":
            events.append(await receive(socket))
        await socket.send_str(json.dumps({"type": "response.cancel"} | lane))
        events += await until_end(socket)
        assert check_stream(events)["error"]["message"] == "the request was cancelled"
        await asyncio.wait_for(llm.stopped.wait(), 5)
        assert llm.generated == 1
        llm.step.release()
        await create(socket, input="1", **lane)
        assert check_stream(await until_end(socket))["status"] == "completed"


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("{", "not valid JSON"),
        ("[]", "wrong field"),
        ("{}", "type"),
        ('{"type":"response.steer"}', "cancel it, and create another"),
        ('{"type":"session.update"}', "response.create"),
        ('{"type":"response.create"}', "input is missing"),
        ('{"type":"response.create","input":"1","model":"nobody"}', "there is no model"),
        ('{"type":"response.create","input":"1","previous_response_id":"resp_1"}', "send the earlier items in input"),
        ('{"type":"response.create","input":"1","conversation":"c"}', "send the earlier items in input"),
        ('{"type":"response.create","input":"1","stream_id":"%s"}' % ("x" * 2000), "characters"),
        ('{"type":"response.create","input":"1","stream_id":7}', "wrong field"),
        ('{"type":"response.create","input":"1","background":true}', "a socket has no background"),
        ('{"type":"response.create","input":[{"type":"item_reference","id":"msg_1"}]}', "send the item itself"),
        ('{"type":"response.create","input":"1","reasoning":{"effort":"low"}}', "the model can't do this: reasoning"),
    ],
)
async def test_what_is_wrong_is_told_and_the_socket_stays(message: str, says: str) -> None:
    async with connected() as (_, socket):
        await socket.send_str(message)
        told = await receive(socket)
        assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
        assert says in told["error"]["message"]
        assert told["error"]["code"], "Open Responses requires a code"
        await create(socket, input="1")
        assert check_stream(await until_end(socket))["status"] == "completed"


async def test_a_request_goes_on_from_the_last_response() -> None:
    call = ToolCallDelta(0, "c1", "f", '{"a":1}', "X:call")
    thought = LlmChunk(reasoning="hm"), LlmChunk(signature="X:proof")
    turns: tuple[Turn, ...] = ((*thought, "Wait", call), ("Done",), ("Bye",))
    async with open_responses(*turns) as it, it.client.responses.connect() as connection:
        ask = connection.response.create

        async def last() -> Any:
            async for event in connection:
                if event.type in {"response.completed", "error"}:
                    return event
            return None

        await ask(model=MODEL, input="hi", include=["reasoning.encrypted_content"], instructions="be kind")
        ended = (await last()).response
        first = ended.id
        result: Any = {"type": "function_call_output", "call_id": "c1", "output": "x"}
        named: Any = [{"type": "item_reference", "id": item.id} for item in ended.output]
        await ask(model=MODEL, input=[*named, result], previous_response_id=first)
        second = (await last()).response
        assert second.previous_response_id == first
        await ask(model=MODEL, input="so?", previous_response_id=second.id)
        assert (await last()).response.output_text == "Bye"
        await ask(model=MODEL, input="so?", previous_response_id=first, stream_id="a")
        refused = await last()
        assert (refused.error.code, refused.stream_id) == ("previous_response_not_found", "a")
    told = it.llm.requests[2].messages
    assert [turn.role for turn in told] == ["user", "assistant", "tool", "assistant", "user"]
    assert told[1].parts == (ReasoningPart("hm", "X:proof"), TextPart("Wait"))
    assert told[1].tool_calls == (ToolCall("c1", "f", '{"a":1}', "X:call"),)
    assert [turn.text for turn in told[2:]] == ["x", "Done", "so?"]


@pytest.mark.parametrize("wrong", [{"input": [{"type": "odd"}]}, {"input": "hi", "model": "nobody"}, {"input": "hi"}])
async def test_nothing_goes_on_from_a_response_from_which_a_request_has_failed(wrong: dict[str, Any]) -> None:
    """Open Responses requires it: a client that is told of a failure sends its whole conversation again."""
    turns = ("Hello",), ("Hel", IncompleteStream("cut")), ("Bye",)
    async with open_responses(*turns) as it, it.opened.http.ws_connect(PATH) as socket:
        await create(socket, input="hi")
        previous = check_stream(await until_end(socket))["id"]
        await create(socket, previous_response_id="resp_other", input="hi")
        assert (await receive(socket))["error"]["code"] == "previous_response_not_found"
        await create(socket, previous_response_id=previous, **wrong)
        if wrong == {"input": "hi"}:
            assert check_stream(await until_end(socket))["status"] == "failed"
        else:
            assert (await receive(socket))["type"] == "error"
        await create(socket, previous_response_id=previous, input="hi")
        assert (await receive(socket))["error"]["code"] == "previous_response_not_found"


async def test_a_new_socket_knows_no_response_and_begins_again() -> None:
    async with open_responses(("Hello",)) as it:
        async with it.opened.http.ws_connect(PATH) as socket:
            await create(socket, input="hi", store=False)
            previous = check_stream(await until_end(socket))["id"]
        async with it.opened.http.ws_connect(PATH) as socket:
            await create(socket, input="so?", previous_response_id=previous)
            assert (await receive(socket))["error"]["code"] == "previous_response_not_found"
            await create(socket, input="hi")
            assert check_stream(await until_end(socket))["status"] == "completed"


async def test_after_a_cancel_a_request_goes_on_from_the_response_before() -> None:
    turns = ("Hello",), ("Hel", asyncio.Event()), ("Bye",)
    async with open_responses(*turns) as it, it.opened.http.ws_connect(PATH) as socket:
        await create(socket, input="hi")
        previous = check_stream(await until_end(socket))["id"]
        await create(socket, previous_response_id=previous, input="so?")
        assert (await receive(socket))["type"] == "response.created"
        await socket.send_str('{"type":"response.cancel"}')
        assert (await until_end(socket))[-1]["type"] == "response.failed"
        await create(socket, previous_response_id=previous, input="so?")
        assert check_stream(await until_end(socket))["status"] == "completed"


async def test_a_request_may_be_sent_ahead_of_the_question() -> None:
    async with connected() as (it, socket):
        await create(socket, input="2", generate=False)
        ahead = check_stream(await until_end(socket))
        assert (ahead["output"], it.llm.requests) == ([], [])
        await create(socket, input=[], previous_response_id=ahead["id"])
        assert check_stream(await until_end(socket))["output"][0]["content"][0]["text"] == "0 1 "


async def test_a_long_conversation_is_not_kept() -> None:
    async with connected() as (_, socket):
        previous: dict[str, str] = {}
        for _ in range(2):
            await create(socket, input="1", metadata={"a": "x" * (MAX_CONVERSATION_BYTES // 2)}, **previous)
            previous = {"previous_response_id": check_stream(await until_end(socket))["id"]}
        await create(socket, input="1", **previous)
        assert (await receive(socket))["error"]["code"] == "previous_response_not_found"


async def test_what_is_wrong_is_counted_from_the_requests_own_first_item() -> None:
    async with connected() as (_, socket):
        await create(socket, input="1")
        first = check_stream(await until_end(socket))
        await create(socket, input=[{"type": "odd"}], previous_response_id=first["id"])
        assert (await receive(socket))["error"]["param"] == "input[0].type"


async def test_a_cancel_of_nothing_is_nothing() -> None:
    async with connected() as (_, socket):
        await socket.send_str('{"type":"response.cancel","stream_id":"nobody"}')
        await create(socket, input="1")
        assert check_stream(await until_end(socket))["status"] == "completed"


async def test_a_limit_says_when_to_come_back() -> None:
    async with (
        open_gateway(LOCKED) as it,
        it.http.ws_connect(PATH, headers={"Authorization": "Bearer right"}) as socket,
    ):
        await create(socket, input="1")
        check_stream(await until_end(socket))
        await create(socket, input="1")
        refused = await receive(socket)
        assert (refused["type"], refused["status"]) == ("error", 429)
        assert 1 <= int(refused["headers"]["retry-after"]) <= 60


async def test_without_an_upgrade_it_is_refused_in_the_doors_shape() -> None:
    async with open_gateway() as it, it.http.get(PATH) as response:
        answer = await response.json()
        assert (response.status, answer["error"]["type"]) == (400, "invalid_request_error")
        assert "WebSocket" in answer["error"]["message"]


async def test_a_message_that_is_too_large_is_not_read() -> None:
    """Its size is all that is known: neither its type nor its fields, which would hold up everybody."""
    async with connected() as (_, socket):
        await socket.send_str(
            json.dumps({"type": "what", "stream_id": "a", "input": "x" * 2 * GatewayConfig().body_limit})
        )
        refused = await receive(socket)
        assert (refused["stream_id"], refused["error"]["code"]) == ("a", "request_too_large")
        await create(socket, input="1")
        assert (await until_end(socket))[-1]["type"] == "response.completed"
