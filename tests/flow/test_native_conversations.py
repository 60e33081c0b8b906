"""Conversations through the native doors, REST and WebSocket: turns in, several parts out, and the model's route."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.fakes.counting_llm import CountingLlm, SteppedLlm
from tests.fakes.recorded_llm import SEVERAL, RecordedLlm
from tests.flow.open_gateway import ON_ANY_PORT, QUICK, Opened, open_gateway
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import Config, GatewayConfig, ServiceConfig, TextCompletionConfig
from tg_base.server import Processor
from tg_gateway.app import Gateway
from tg_schema import ImagePart, Message, TextPart, Tool, ToolCall
from tg_schema.conversation import ReasoningPart
from tg_schema.text_completion import Reasoning

Post = Callable[[ClientSession, dict[str, Any]], Awaitable[dict[str, Any]]]


async def post_rest(http: ClientSession, body: dict[str, Any]) -> dict[str, Any]:
    async with http.post("api/v1/text-completion", json=body) as response:
        return dict(await response.json())


async def post_socket(http: ClientSession, body: dict[str, Any]) -> dict[str, Any]:
    async with http.ws_connect("api/v1/socket") as socket:
        await socket.send_json({"id": 1, "service": "text-completion", "request": body})
        frame = await socket.receive_json(timeout=10)
        assert frame["complete"]
        return dict(frame.get("response") or frame)


@pytest.fixture(params=[post_rest, post_socket], ids=["rest", "socket"])
def post(request: pytest.FixtureRequest) -> Post:
    chosen: Post = request.param
    return chosen


@pytest.fixture
async def model() -> RecordedLlm:
    return RecordedLlm(*SEVERAL)


@pytest.fixture
async def it(model: RecordedLlm) -> AsyncIterator[Opened]:
    async with open_gateway(instead=model) as opened:
        yield opened


CONVERSATION: dict[str, Any] = {
    "system": "be brief",
    "messages": [
        {"role": "developer", "content": "no lists"},
        {"role": "user", "content": [{"type": "text", "text": "what?"}, {"type": "image", "data": "aGk="}]},
        {
            "role": "assistant",
            "content": [{"type": "reasoning", "text": "hm", "signature": "fake:0"}],
            "tool_calls": [{"id": "c1", "name": "look", "arguments": '{"at":"it"}'}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
    ],
    "tools": [{"name": "look", "parameters": {"type": "object"}}],
    "tool_choice": "none",
    "reasoning": {"effort": "low"},
    "sampling": {"n": 2},
}


async def test_a_conversation_reaches_the_model_whole(it: Opened, model: RecordedLlm, post: Post) -> None:
    assert (await post(it.http, CONVERSATION))["end_of_stream"]
    (request,) = model.requests
    assert request.messages == (
        Message("developer", "no lists"),
        Message("user", (TextPart("what?"), ImagePart(data="aGk="))),
        Message("assistant", (ReasoningPart("hm", "fake:0"),), (ToolCall("c1", "look", '{"at":"it"}'),)),
        Message("tool", "a cat", tool_call_id="c1"),
    )
    assert request.tools == (Tool("look", parameters={"type": "object"}),)
    assert (request.tool_choice, request.reasoning) == ("none", Reasoning("low"))
    assert request.sampling is not None
    assert request.sampling.n == 2


async def test_a_whole_answer_shows_each_of_several(it: Opened, post: Post) -> None:
    body = await post(it.http, {"prompt": "x", "sampling": {"n": 2}})
    parts = body.pop("parts")
    assert body == {
        "response": "one two",
        "in_token": 5,
        "out_token": 9,
        "reasoning_token": 2,
        "model": "recorded",
        "end_of_stream": True,
        "finish_reason": "stop",
        "reasoning": "hmso",
    }
    assert [(part.get("index", 0), part["response"], part.get("signature")) for part in parts] == [
        (0, "one", "fake:1"),
        (0, " two", "fake:2"),
        (1, "uno", None),
    ]
    assert [part["end_of_stream"] for part in parts] == [False, False, True]
    assert parts[-1]["out_token"] == 9


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"messages": []}, "prompt is missing"),
        ({"messages": [{"role": "user", "text": "hi"}]}, "prompt is missing"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"prompt": "x", "tools": [{"type": "function"}]}, "missing required field `name` - at `$.tools[0]`"),
        ({"prompt": "x", "reasoning": {"effort": "much"}}, "reasoning.effort"),
        ({"prompt": "x", "regex": "a+"}, "the model can't do this: regex"),
    ],
)
async def test_what_is_wrong_is_named(it: Opened, post: Post, body: dict[str, Any], sentence: str) -> None:
    error = (await post(it.http, body))["error"]
    assert error["type"] == "bad-request"
    assert sentence in error["message"]


FLOWS: dict[str, dict[str, ServiceConfig]] = {
    "default": {"text-completion": TextCompletionConfig(model="counting")},
    "other": {"text-completion": TextCompletionConfig(model="recorded")},
}
CONFIG = Config(flows=FLOWS)
ALIASES = GatewayConfig(port=ON_ANY_PORT.port, drain=0.05, aliases={"best": "recorded", "tuned": "recorded:mine"})


@pytest.fixture
async def two(model: RecordedLlm) -> AsyncIterator[ClientSession]:
    """A gateway with two flows, each with its model."""
    routes = CONFIG.routes("text-completion")
    counting, recorded = (next(route for route in routes if route.flow == flow) for flow in ("default", "other"))
    async with aclosing(MemoryBus()) as bus, AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(Processor(bus, CONFIG.topics, CountingLlm(), (counting,), models=("counting",), grace=0.05))
        await enter(Processor(bus, CONFIG.topics, model, (recorded,), models=("recorded",), grace=0.05))
        requestor = await enter(Requestor(bus, CONFIG.topics))
        gateway = await enter(Gateway(ALIASES, requestor, routes))
        await until(lambda: all(requestor.presence.serving(route.request) for route in routes))
        yield await enter(ClientSession(gateway.url))


@pytest.mark.parametrize("name", ["recorded", "best"])
async def test_a_model_chooses_its_flow(two: ClientSession, model: RecordedLlm, post: Post, name: str) -> None:
    assert (await post(two, {"prompt": "x", "model": name}))["model"] == "recorded"
    assert model.requests[0].model == "recorded"


async def test_an_adapter_is_named_behind_its_model(two: ClientSession, post: Post) -> None:
    error = (await post(two, {"prompt": "x", "model": "tuned"}))["error"]
    assert "the model can't do this: adapter" in error["message"]


async def test_a_flow_that_is_named_keeps_its_requests(two: ClientSession) -> None:
    async def ask(flow: str, model: str) -> tuple[int, dict[str, Any]]:
        body = {"prompt": "1", "model": model}
        async with two.post(f"api/v1/flow/{flow}/service/text-completion", json=body) as response:
            return response.status, dict(await response.json())

    assert (await ask("other", "best"))[1]["model"] == "recorded"
    status, body = await ask("default", "best")
    assert (status, body["error"]["message"]) == (
        404,
        "no model of that name is served here; this flow serves counting",
    )


MODELS = [
    {"model": "counting", "flow": "default", "features": []},
    {"model": "recorded", "flow": "other", "features": sorted(RecordedLlm.features)},
    {"model": "best", "flow": "other", "features": sorted(RecordedLlm.features), "alias_of": "recorded"},
    {"model": "tuned", "flow": "other", "features": sorted(RecordedLlm.features), "alias_of": "recorded:mine"},
]
MODELS[0]["features"] = sorted(CountingLlm().features)


async def test_the_models_that_can_be_asked(two: ClientSession) -> None:
    async with two.get("api/v1/models") as response:
        assert (response.status, response.content_type) == (200, "application/json")
        assert await response.json() == {"models": MODELS}
    async with two.head("api/v1/models") as response:
        assert response.status == 200
    async with two.ws_connect("api/v1/socket") as socket:
        await socket.send_str(json.dumps({"id": 1, "service": "models", "request": {}}))
        assert await socket.receive_json(timeout=10) == {"id": 1, "response": {"models": MODELS}, "complete": True}


async def test_the_list_says_how_busy_a_model_is() -> None:
    llm = SteppedLlm()
    async with open_gateway(llm=llm, timing=QUICK) as it:
        asking = asyncio.create_task(post_rest(it.http, {"prompt": "1"}))
        async with asyncio.timeout(10):
            model: dict[str, Any] = {}
            while "running" not in model:
                async with it.http.get("api/v1/models") as response:
                    (model,) = (await response.json())["models"] or [model]
        assert model["running"] == 1
        assert 0 < model["load"] < 1
        llm.step.release()
        assert (await asking)["response"] == "0 "
