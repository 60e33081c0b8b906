"""One request, one id: at the door, in every process behind it, in every line of the log, and one trace for all."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.mortal_bus import MortalBus
from tests.fakes.turns_llm import TurnsLlm
from tests.flow.agent_dialog import BASE, LIVELY, TOPICS, pipeline
from tests.flow.agent_turns import DONE, call
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT, QUICK, TEXTS, open_gateway
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.protocol import RequestHeaders, Route, StreamKey
from tg_base.server import Processor
from tg_base.telemetry import Span
from tg_base.telemetry.trace import MAX_ID_CHARACTERS, add_ids, child, current, enter, name_caller
from tg_gateway.app import Gateway
from tg_schema import AGENT, PROMPT, TEXT_COMPLETION, TextCompletionRequest

SPECS = (AGENT, PROMPT, TEXT_COMPLETION)
ROUTES = [Route("default", spec, TOPICS.request("default", spec.name), "", False) for spec in SPECS]
CONFIGURED = (
    BASE
    + """
[prompts.templates.greet]
prompt = "Greet {{ who }}."
[tools.greet]
kind = "prompt"
description = "Greets."
[tools.logs]
kind = "python"
options.function = "tests.fakes.tools:logs"
"""
)
TURNS = (call("greet", who="Ann"), ("Hello ", "Ann"), call("logs"), DONE)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs([add_ids]) as lines:
        yield lines


@asynccontextmanager
async def agent(folder: Path) -> AsyncIterator[tuple[str, list[dict[str, str]]]]:
    """The URL of a gateway before an agent, and the properties of all requests on the bus."""
    bus, seen = MemoryBus(), list[dict[str, str]]()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.aclose)
        watched = [await stack.enter_async_context(bus.subscribe(route.request, "watcher")) for route in ROUTES]
        await stack.enter_async_context(pipeline(TurnsLlm(*TURNS), folder, CONFIGURED, bus=bus))
        requestor = await stack.enter_async_context(Requestor(bus, CONFIG.topics, timing=LIVELY))
        gateway = await stack.enter_async_context(Gateway(ON_ANY_PORT, requestor, (ROUTES[0],)))
        yield gateway.url, seen
        for deliveries, count in zip(watched, (1, 1, len(TURNS)), strict=True):
            seen += [dict((await anext(deliveries)).properties) for _ in range(count)]


def of_request(lines: list[Any]) -> list[Any]:
    """All that was logged after the gateway listened, which is about the only request that there was."""
    start = next(number for number, line in enumerate(lines) if line["event"] == "gateway.listening")
    return lines[start + 1 :]


async def test_every_hop_of_an_agent_says_whose_request_it_is(tmp_path: Path, logs: list[Any]) -> None:
    async with agent(tmp_path) as (url, seen), aiohttp.ClientSession(url) as http:
        headers = {"X-Request-Id": "r-1", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        async with http.post("/api/v1/agent", json={"question": "q"}, headers=headers) as response:
            assert (response.status, response.headers["X-Request-Id"]) == (200, "r-1")
            stream = response.headers["X-Stream-Id"]
        lines = of_request(logs)
    assert {line["request"] for line in lines} == {"r-1"}
    assert {line["traceparent"].split("-")[1] for line in lines} == {TRACE}
    assert Counter(line["event"] for line in lines) == {"gateway.request": 1, "request.done": 6, "tool.said": 1}
    done = {line["stream"]: line for line in lines if line["event"] == "request.done"}
    assert len(done) == 6
    assert (done[stream]["service"], "parent" in done[stream]) == ("agent", False)
    prompted = next(line["stream"] for line in done.values() if line["service"] == "prompt")
    asked_by = Counter((line["service"], line["parent"]) for line in done.values() if line["stream"] != stream)
    assert asked_by == {("text-completion", stream): 3, ("prompt", stream): 1, ("text-completion", prompted): 1}
    assert {line["stream"] for line in lines if line["event"] in {"gateway.request", "tool.said"}} == {stream}
    assert {one["request"] for one in seen} == {"r-1"}
    assert len({one["traceparent"] for one in seen}) == 6
    assert {one["traceparent"].split("-")[1] for one in seen} == {TRACE}


async def test_requests_on_a_socket_are_told_apart(logs: list[Any]) -> None:
    async with open_gateway() as it, it.http.ws_connect("/api/v1/socket", headers={"X-Request-Id": "r-2"}) as socket:
        assert socket._response.headers["X-Request-Id"] == "r-2"
        for name in ("a", "b"):
            await socket.send_json({"id": name, "service": "text-completion", "request": {"prompt": "1"}})
            assert (await socket.receive_json(timeout=5))["complete"] is True
        await socket.close()
    ids = {event: [line["request"] for line in logs if line["event"] == event] for event in ("request.done",)}
    assert ids["request.done"] == ["r-2.1", "r-2.2"]
    doors = [line for line in logs if line["event"] == "gateway.request"]
    assert [line["request"] for line in doors] == ["r-2.1", "r-2.2", "r-2"]
    assert len({line["traceparent"].split("-")[1] for line in doors}) == 3
    for line in doors[:2]:
        (done,) = [one for one in logs if one["event"] == "request.done" and one["request"] == line["request"]]
        assert done["stream"] == line["stream"]
        assert done["traceparent"].split("-")[1] == line["traceparent"].split("-")[1]


async def test_one_connection_does_not_keep_the_ids_of_the_request_before(logs: list[Any]) -> None:
    async with open_gateway() as it:
        for number in (1, 2):
            headers = {"X-Request-Id": f"r-{number}"}
            async with it.http.post("/api/v1/text-completion", json={"prompt": "1"}, headers=headers) as response:
                assert response.headers["X-Request-Id"] == f"r-{number}"
        async with it.http.get("/health", headers={"X-Request-Id": "r-3"}) as response:
            assert response.status == 200
    lines = of_request(logs)
    assert [(line["event"], line["request"]) for line in lines] == [
        ("request.done", "r-1"),
        ("gateway.request", "r-1"),
        ("request.done", "r-2"),
        ("gateway.request", "r-2"),
        ("gateway.request", "r-3"),
    ]
    assert lines[-1]["stream"] is None
    assert len({line["traceparent"].split("-")[1] for line in lines}) == 3


async def test_a_second_attempt_is_for_the_same_request(logs: list[Any]) -> None:
    """It is asked by a task that works for nobody: whose request it is was kept with the stream."""
    bus = MemoryBus()
    mortal, held = MortalBus(bus), CountingLlm()
    held.step = asyncio.Semaphore(0)
    enter(Span.at_door("r-4", None))
    async with (
        bus.subscribe(TEXTS[0].request, "watcher") as asked,
        Requestor(MortalBus(bus), CONFIG.topics, timing=QUICK) as requestor,
        Processor(mortal, CONFIG.topics, held, TEXTS, timing=QUICK, grace=0.05),
        requestor.stream(TEXTS[0], TextCompletionRequest(prompt="0"), timeout=60) as responses,
    ):
        await held.started.wait()
        mortal.kill()
        async with Processor(MortalBus(bus), CONFIG.topics, CountingLlm(), TEXTS, timing=QUICK, grace=0.05):
            assert [record.last async for record in responses] == [True]
        first, second = [(await anext(asked)).properties for _ in range(2)]
    assert (first["attempt"], second["attempt"]) == ("1", "2")
    assert {one["request"] for one in (first, second)} == {"r-4"}
    assert first["traceparent"] == second["traceparent"]
    assert {line["request"] for line in logs if line["event"] in {"stream.attempt", "request.done"}} == {"r-4"}


SAID = st.none() | st.text()


@given(SAID, SAID, SAID, SAID)
@example("", "", "", "")
def test_what_a_peer_says_of_it_is_an_id_or_nothing(
    request: str | None, parent: str | None, given: str | None, caller: str | None
) -> None:
    span = Span.from_peer("s", request, parent, given, caller)
    for name in (span.request, *(name for name in (span.parent, span.caller) if name is not None)):
        assert re.fullmatch(r"[\w.:-]+", name, re.ASCII)
        assert len(name) <= MAX_ID_CHARACTERS

    def ask() -> Span:
        enter(span)
        return child("t")

    nested = Context().run(ask)
    assert (nested.request, nested.parent, nested.stream) == (span.request, "s", "t")
    assert nested.traceparent.split("-")[1] == span.traceparent.split("-")[1]
    assert nested.traceparent != span.traceparent


def test_it_travels_whole() -> None:
    span = Span("r", "s", "p", f"00-{TRACE}-00f067aa0ba902b7-01")
    written = RequestHeaders(StreamKey("s", 1), span=span).properties
    assert Span.from_peer("s", written["request"], written["parent"], written["traceparent"]) == span
    assert "parent" not in RequestHeaders(StreamKey("s", 1), span=child("s")).properties


@pytest.mark.parametrize("caller", ["c1", "c2"])
def test_a_test_does_not_work_for_the_request_of_the_one_before(caller: str) -> None:
    assert current() is None
    name_caller(caller)
