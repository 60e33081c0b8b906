"""Every body of the Responses API, over HTTP and on the WebSocket, against OpenAI's description and Open Responses'."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from aiohttp import ClientPayloadError
from hypothesis import given, settings

from tests.descriptions.published import open_responses_description, openai_description
from tests.fakes.chat_llm import ChatLlm
from tests.fakes.token_counter import TokenCounter
from tests.fakes.turns_llm import Turn, TurnsLlm
from tests.fakes.unwritable_bus import UnwritableBus
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.open_responses import FEATURES, MODEL
from tests.flow.responses_stream import ENDINGS, check_stream, read_events
from tests.flow.test_responses_socket import create, receive, until_end
from tests.unit.test_responses_events import SEALED, answers, stream, whole
from tg_base.bus.memory import MemoryBus
from tg_base.config import ApiKey, GatewayConfig
from tg_base.llm import LlmChunk
from tg_gateway.access import Limits
from tg_schema import TextCompletionResponse, Token, ToolCallDelta
from tg_schema.errors import IncompleteStream, RateLimited

pytestmark = [pytest.mark.descriptions, pytest.mark.timeout(600)]

PATH: Final = "/v1/responses"
KEY: Final = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest(), requests_per_minute=1)
LOCKED: Final = GatewayConfig(port=0, drain=0.05, keys=(KEY,), body_limit=150, large_body_limit=150)
RENAMED: Final = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}
"""The names of thinking: OpenAI's, which the SDK and Codex read, and those of Open Responses."""
NULLS: Final = frozenset({"prompt_cache_key", "safety_identifier", "usage"})
"""Open Responses requires these fields, with null where there is no value.

OpenAI's description has no null for them; its servers send it, and its later versions allow it for the first two. It is
the same with the description of a schema.
"""
TOOL: Final = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
BARE_TOOL: Final = {"type": "function", "name": "g"}
SCHEMA: Final = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
TOKENS: Final = (
    Token(1, "Hi", -0.5, ((1, -0.5), (2, -2.5)), ("Hi", "Ho")),
    Token(2, "\ufffd", -0.5, raw_bytes=b"\xc3"),
)
THINKS: Final = (LlmChunk(reasoning="so "), LlmChunk(reasoning="it is"), LlmChunk(signature="X:proof"), "Yes")
CALLS: Final = (
    "Wait",
    ToolCallDelta(0, "c1", "f", '{"a"'),
    ToolCallDelta(1, "c2", "g"),
    ToolCallDelta(0, arguments=":1}"),
)
ASKED: Final[dict[str, tuple[Turn, dict[str, Any]]]] = {
    "text": (("Hel", "lo"), {}),
    "nothing": ((), {}),
    "usage": (("a", LlmChunk("b", cached_token=3, cache_write_token=1, reasoning_token=2)), {}),
    "calls": (CALLS, {"tools": [TOOL, BARE_TOOL, {"type": "web_search"}]}),
    "one choice": (CALLS[1:], {"tools": [TOOL, BARE_TOOL], "tool_choice": {"type": "function", "name": "f"}}),
    "choices": (
        ("no",),
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [TOOL]}},
    ),
    "thinking": (THINKS, {"reasoning": {"effort": "low"}}),
    "sealed thinking": (THINKS, SEALED),
    "summary": (THINKS, {"reasoning": {"effort": "low", "summary": "auto"}, **SEALED}),
    "log-probabilities": ((LlmChunk("Hi\ufffd", tokens=TOKENS),), {"top_logprobs": 2}),
    "length": (("Hel", LlmChunk(finish_reason="length")), {"max_output_tokens": 16}),
    "filter": (("Hel", LlmChunk(finish_reason="content_filter")), {}),
    "object": (("{}",), {"text": {"format": {"type": "json_object"}, "verbosity": "low"}}),
    "schema": (("{}",), {"text": {"format": SCHEMA}}),
    "every field": (
        ("Hello",),
        {
            "instructions": "be brief",
            "temperature": 0.5,
            "top_p": 0.5,
            "presence_penalty": 0.5,
            "frequency_penalty": -0.5,
            "parallel_tool_calls": False,
            "metadata": {"a": "b"},
            "prompt_cache_key": "k",
            "safety_identifier": "s",
            "user": "u",
            "truncation": "auto",
            "max_output_tokens": 100,
        },
    ),
}
IMAGE: Final = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
CONVERSATION: Final = [
    {"role": "developer", "content": "be brief"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}, IMAGE]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}], "content": None},
    {"role": "assistant", "content": "I look."},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "done"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "It is done."}]},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    {"role": "user", "content": "and now?"},
]
FAILED: Final = [
    (error,) if piece is None else (piece, error)
    for piece in (None, "Hel")
    for error in (IncompleteStream("cut"), RateLimited("slow down"))
]
REFUSED_ON_THE_SOCKET: Final[list[dict[str, Any]]] = [
    {},
    {"input": "hi", "model": "nobody"},
    {"input": "hi", "previous_response_id": "resp_1"},
    {"input": "hi", "top_logprobs": 99},
    {"input": [{"type": "odd"}]},
]
REFUSED: Final = [
    ("POST", PATH, "{", 400),
    ("POST", PATH, {"model": "nobody", "input": "hi"}, 404),
    ("POST", PATH, {"model": MODEL}, 400),
    ("POST", PATH, {"model": MODEL, "input": "hi", "top_logprobs": 99}, 400),
    ("POST", f"{PATH}/input_tokens", {"model": MODEL}, 400),
    ("POST", f"{PATH}/compact", {"input": "hi"}, 400),
    ("GET", f"{PATH}/resp_none", None, 404),
    ("DELETE", f"{PATH}/resp_none", None, 404),
    ("GET", f"{PATH}/resp_none/input_items", None, 404),
    ("POST", f"{PATH}/resp_none/cancel", None, 404),
    ("POST", PATH, {"model": MODEL, "input": "hi", "background": True, "store": False}, 400),
    ("PUT", PATH, None, 405),
    ("GET", f"{PATH}/a/b/c", None, 404),
]


def without_schema(response: dict[str, Any]) -> dict[str, Any]:
    """The response without the schema of its text: Open Responses allows nothing but null there, OpenAI no null."""
    form = {name: None if name == "schema" else value for name, value in response["text"]["format"].items()}
    return response | {"text": response["text"] | {"format": form}}


def without_nulls(response: dict[str, Any]) -> dict[str, Any]:
    """The response without the nulls that one description requires and the other does not know."""
    told = {name: value for name, value in response.items() if value is not None or name not in NULLS}
    form = {name: value for name, value in told["text"]["format"].items() if value is not None}
    return told | {"text": told["text"] | {"format": form}}


def check_response(response: dict[str, Any]) -> None:
    openai_description().check("Response", without_nulls(response))
    open_responses_description().check("ResponseResource", without_schema(response))


def check_error(body: Any) -> None:
    openai_description().check("ErrorResponse", body)
    open_responses_description().check("ErrorPayload", body["error"])


def check_socket_error(message: object) -> None:
    open_responses_description().check("WebSocketErrorEvent", message)


def check_events(events: Sequence[dict[str, Any]]) -> None:
    check_stream(events)
    for event in events:
        response = event.get("response")
        told, renamed = event, event | {"type": RENAMED.get(event["type"], event["type"])}
        if response is not None:
            told, renamed = (
                told | {"response": without_nulls(response)},
                renamed | {"response": without_schema(response)},
            )
        openai_description().check_event(told)
        open_responses_description().check_event(renamed)


async def get(it: Opened, path: str, method: str = "GET", **query: str) -> Any:
    async with it.http.request(method, path, params=query) as response:
        assert response.status == 200
        return await response.json()


@pytest.mark.parametrize("case", ASKED)
async def test_a_response(case: str) -> None:
    turn, fields = ASKED[case]
    body = {"model": MODEL, "input": "hi", "store": True, **fields}
    async with open_gateway(instead=TurnsLlm(turn, features=FEATURES | {"logprobs"}, model=MODEL)) as it:
        async with it.http.post(PATH, json=body) as response:
            said = await response.json()
            assert response.status == 200, said
        check_response(said)
        async with it.http.post(PATH, json=body | {"stream": True}) as response:
            told = await response.read()
        check_events(read_events(told))
        name = read_events(told)[-1]["response"]["id"]
        check_response(await get(it, f"{PATH}/{name}"))
        async with it.http.get(f"{PATH}/{name}", params={"stream": "true"}) as response:
            assert await response.read() == told
        async with it.http.ws_connect(PATH) as socket:
            await create(socket, **body)
            check_events(await until_end(socket))


async def test_a_kept_conversation() -> None:
    async with open_gateway(instead=TurnsLlm(("ok",), features=FEATURES, model=MODEL)) as it:
        async with it.http.post(PATH, json={"model": MODEL, "input": CONVERSATION, "store": True}) as response:
            said = await response.json()
        check_response(said)
        for limit in ("100", "2"):
            page = await get(it, f"{PATH}/{said['id']}/input_items", limit=limit)
            openai_description().check("ResponseItemList", page)
        async with it.http.post(
            PATH, json={"model": MODEL, "input": "?", "previous_response_id": said["id"]}
        ) as response:
            check_response(await response.json())
        assert await get(it, f"{PATH}/{said['id']}", "DELETE") == {
            "id": said["id"],
            "object": "response",
            "deleted": True,
        }


async def test_a_response_in_the_background() -> None:
    """While it runs, cancelled, streamed to its end, and one whose gateway falls silent."""
    gate, bus = asyncio.Event(), UnwritableBus(MemoryBus())
    llm = TurnsLlm(("Hel", gate, "lo"), features=FEATURES, model=MODEL)
    body = {"model": MODEL, "input": "hi", "background": True}
    async with open_gateway(instead=llm, bus=bus, limits=Limits(silence=0.2)) as it:
        async with it.http.post(PATH, json=body) as response:
            made = await response.json()
        for shown in (made, await get(it, f"{PATH}/{made['id']}")):
            check_response(shown)
        check_response(await get(it, f"{PATH}/{made['id']}/cancel", "POST"))
        bus.dropped = {"records", "alive", "end"}
        async with it.http.post(PATH, json=body | {"stream": True}) as response:
            told = read_events(await response.read())
        states = ["queued", "queued", "in_progress", "failed"]
        assert [event["response"]["status"] for event in told] == states
        for event in told:
            check_response(event["response"])
        bus.dropped = set()
        gate.set()
        async with it.http.post(PATH, json=body | {"stream": True}) as response:
            check_events(read_events(await response.read()))


async def test_a_count() -> None:
    body = {"model": MODEL, "input": "hi"}
    async with (
        open_gateway(instead=TokenCounter(MODEL)) as it,
        it.http.post(f"{PATH}/input_tokens", json=body) as response,
    ):
        openai_description().check("TokenCountsResource", await response.json())


@pytest.mark.parametrize("turn", [("They", " met."), (LlmChunk("They met."),)], ids=["usage", "no usage"])
async def test_a_compaction(turn: Turn) -> None:
    async with open_gateway(instead=TurnsLlm(turn, features=FEATURES, model=MODEL)) as it:
        async with it.http.post(f"{PATH}/compact", json={"model": MODEL, "input": CONVERSATION}) as response:
            compacted = await response.json()
        openai_description().check("CompactResource", compacted)
        open_responses_description().check("CompactResource", compacted)
        items = [*compacted["output"], {"role": "user", "content": "hi"}]
        async with it.http.post(PATH, json={"model": MODEL, "input": items, "store": True}) as response:
            said = await response.json()
        check_response(said)
        openai_description().check("ResponseItemList", await get(it, f"{PATH}/{said['id']}/input_items"))


@pytest.mark.parametrize("turn", FAILED)
async def test_a_failure(turn: Turn) -> None:
    """Over HTTP it is a status before the first byte, and the last event after it; on the WebSocket likewise."""
    body = {"model": MODEL, "input": "hi"}
    async with open_gateway(instead=ChatLlm(turn)) as it:
        async with it.http.post(PATH, json=body) as response:
            assert response.status in {429, 502}
            check_error(await response.json())
        told = bytearray()
        async with it.http.post(PATH, json=body | {"stream": True}) as response:
            with contextlib.suppress(ClientPayloadError):
                async for piece in response.content.iter_any():
                    told += piece
        if len(turn) == 1:
            check_error(json.loads(told))
        else:
            check_events(read_events(bytes(told)))
        async with it.http.ws_connect(PATH) as socket:
            await create(socket, **body)
            events = [await receive(socket)]
            while events[-1]["type"] not in {"error", *ENDINGS}:
                events.append(await receive(socket))
        if len(turn) == 1:
            check_socket_error(*events)
        else:
            check_events(events)


@pytest.mark.parametrize("path", [PATH, f"{PATH}/compact", "/v1/chat/completions"])
async def test_what_a_key_may_not(path: str) -> None:
    body = {"model": MODEL, "input": "1", "messages": [{"role": "user", "content": "1"}]}
    async with open_gateway(LOCKED, instead=ChatLlm(("ok",))) as it:
        for key, said, status in (
            ("wrong", body, 401),
            ("right", "x" * 200, 413),
            ("right", body, 200),
            ("right", body, 429),
        ):
            async with it.http.post(path, json=said, headers={"Authorization": f"Bearer {key}"}) as response:
                assert response.status == status
                if status != 200:
                    check_error(await response.json())


@pytest.mark.parametrize("message", ["{", '{"type":"odd"}', *REFUSED_ON_THE_SOCKET])
async def test_a_refusal_on_the_socket(message: str | dict[str, Any]) -> None:
    data = message if isinstance(message, str) else json.dumps({"type": "response.create", "model": MODEL, **message})
    async with open_gateway() as it, it.http.ws_connect(PATH) as socket:
        await socket.send_str(data)
        check_socket_error(await receive(socket))


@pytest.mark.parametrize(("method", "path", "body", "status"), REFUSED)
async def test_a_refusal(method: str, path: str, body: object, status: int) -> None:
    data = body if isinstance(body, str) else None if body is None else json.dumps(body)
    async with open_gateway() as it, it.http.request(method, path, data=data) as response:
        assert response.status == status
        check_error(await response.json())


@settings(max_examples=50, deadline=None)
@given(answers())
def test_any_answer(records: list[TextCompletionResponse]) -> None:
    check_response(whole(records, **SEALED))
    check_events(stream(records, **SEALED))
