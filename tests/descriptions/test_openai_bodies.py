"""Every body of OpenAI's chat completions and models, against OpenAI's description."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from aiohttp import ClientPayloadError
from hypothesis import given, settings

from tests.descriptions.published import openai_description
from tests.fakes.chat_llm import ABLE, ChatLlm
from tests.fakes.turns_llm import Turn
from tests.flow.open_gateway import open_gateway, until_listed
from tests.flow.openai_sdk import MODEL, ask
from tests.unit.test_openai_splits import answers, body_of, events_of, stream
from tg_base.llm import LlmChunk
from tg_schema import TextCompletionResponse, TgError, Token, ToolCallDelta
from tg_schema.errors import IncompleteStream, RateLimited

pytestmark = [pytest.mark.descriptions, pytest.mark.timeout(600)]

PATH: Final = "v1/chat/completions"
TOKENS: Final = (
    Token(1, "He", -0.25, ((1, -0.25), (2, -2.5)), ("He", "Ha")),
    Token(3, "\ufffd", -0.5, raw_bytes=b"\xc3"),
)
CALLS: Final = (
    ToolCallDelta(0, "call_a", "f", '{"ci'),
    ToolCallDelta(1, "call_b", "g", signature="X:call"),
    ToolCallDelta(0, arguments='ty":1}'),
)
TOOLS: Final = {
    "tools": [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}},
        {"type": "function", "function": {"name": "g"}},
    ]
}
USAGE: Final = {"stream_options": {"include_usage": True}}
SCHEMA: Final = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
ASKED: Final[dict[str, tuple[Turn, dict[str, Any]]]] = {
    "text": (("Hel", "lo"), {}),
    "nothing": ((), {}),
    "usage": (("a", LlmChunk("b", cached_token=3, cache_write_token=1, reasoning_token=2)), USAGE),
    "no usage": ((LlmChunk("a"),), USAGE),
    "calls": (("Wait", *CALLS), TOOLS),
    "only calls": (CALLS, TOOLS),
    "thinking": ((LlmChunk(reasoning="so"), LlmChunk(reasoning=" on"), LlmChunk(signature="X:proof"), "Yes"), {}),
    "log-probabilities": ((LlmChunk("He\ufffd", tokens=TOKENS),), {"logprobs": True, "top_logprobs": 2}),
    "length": (("Hel", LlmChunk(finish_reason="length")), {"max_completion_tokens": 16}),
    "filter": (("Hel", LlmChunk(finish_reason="content_filter")), {}),
    "schema": (("{}",), {"response_format": SCHEMA}),
    "two": (("a",), {"n": 2, **USAGE}),
}
REFUSED: Final = [
    ("POST", PATH, "{", 400),
    ("POST", PATH, {"model": "nobody", "messages": [{"role": "user", "content": "hi"}]}, 404),
    ("POST", PATH, {"model": MODEL}, 400),
    ("POST", PATH, {"model": MODEL, "messages": []}, 400),
    ("POST", PATH, {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "n": 0}, 400),
    ("POST", PATH, {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "audio": {}}, 400),
    ("GET", PATH, None, 405),
    ("GET", "v1/models/nobody", None, 404),
    ("GET", "v1/nothing", None, 404),
]


def check_chunks(data: bytes) -> None:
    for chunk in events_of(data):
        openai_description().check("CreateChatCompletionStreamResponse", chunk)


@pytest.mark.parametrize("case", ASKED)
async def test_a_completion(case: str) -> None:
    turn, fields = ASKED[case]
    fields = {name: value for name, value in fields.items() if name != "stream_options"}
    async with open_gateway(instead=ChatLlm(turn, features=ABLE | {"logprobs"})) as it:
        async with it.http.post(PATH, json=ask("hi", **fields)) as response:
            said = await response.json()
            assert response.status == 200, said
        openai_description().check("CreateChatCompletionResponse", said)
        async with it.http.post(PATH, json=ask("hi", stream=True, **ASKED[case][1])) as response:
            check_chunks(await response.read())


async def test_models() -> None:
    async with open_gateway() as it:
        await until_listed(it.http)
        async with it.http.get("v1/models") as response:
            listed = await response.json()
        async with it.http.get(f"v1/models/{MODEL}") as response:
            shown = await response.json()
    assert listed["data"] == [shown]
    openai_description().check("ListModelsResponse", listed)
    openai_description().check("Model", shown)


@pytest.mark.parametrize("error", [IncompleteStream("cut"), RateLimited("slow down")])
async def test_a_failure_before_the_first_byte(error: TgError) -> None:
    async with open_gateway(instead=ChatLlm((error,))) as it:
        for streamed in (False, True):
            async with it.http.post(PATH, json=ask("hi", stream=streamed)) as response:
                assert response.status == error.status
                openai_description().check("ErrorResponse", await response.json())


async def test_a_failure_in_mid_stream() -> None:
    told = bytearray()
    async with (
        open_gateway(instead=ChatLlm(("Hel", IncompleteStream("cut")))) as it,
        it.http.post(PATH, json=ask("hi", stream=True)) as response,
    ):
        with contextlib.suppress(ClientPayloadError):
            async for piece in response.content.iter_any():
                told += piece
    *chunks, error, rest = bytes(told).split(b"\n\n")
    assert rest == b""
    check_chunks(b"".join([b"%b\n\n" % chunk for chunk in (*chunks, b"data: [DONE]")]))
    openai_description().check("ErrorResponse", json.loads(error.removeprefix(b"data: ")))


@pytest.mark.parametrize(("method", "path", "body", "status"), REFUSED)
async def test_a_refusal(method: str, path: str, body: object, status: int) -> None:
    data = body if isinstance(body, str) else None if body is None else json.dumps(body)
    async with open_gateway() as it, it.http.request(method, path, data=data) as response:
        assert response.status == status
        openai_description().check("ErrorResponse", await response.json())


@settings(max_examples=50, deadline=None)
@given(answers())
def test_any_answer(records: Sequence[TextCompletionResponse]) -> None:
    openai_description().check("CreateChatCompletionResponse", body_of(records))
    check_chunks(stream(records))
