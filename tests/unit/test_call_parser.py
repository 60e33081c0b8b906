"""A large body is parsed in another process: the same is asked, and this process does little at a time meanwhile."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from tests.fakes.turn_counter import TurnCounter
from tests.flow.open_gateway import PROMPTS, TEXTS
from tg_base.config import Config
from tg_base.protocol import EncodedRequest, Presence
from tg_doors.lmi.invocation import PayloadError
from tg_gateway.dialects import Answer, Ask, Batch, Call, Catalogue, Dialect
from tg_gateway.mounts import load_mounts
from tg_gateway.parsing import CallParser
from tg_schema import TextCompletionResponse, TgError
from tg_schema.errors import BadRequest, NotFound, ProtocolError, RateLimited, TooLarge

MOUNTS = load_mounts()
AGENTS = Config().routes("agent")
MANY = 3000
"""Items of a body. To read one takes more than one call, so in this process there would be several times as many."""
SENT = {
    "/api/v1/text-completion": "messages",
    "/v1/chat/completions": "messages",
    "/v1/responses": "input",
    "/v1/messages": "messages",
}
PRESENCE = Presence("p", (TEXTS[0].request,), 1, 0, ("counting",), features=("history", "tools"))
WORD = TextCompletionResponse(response="word")


@pytest.fixture
async def parser() -> AsyncIterator[CallParser]:
    made = CallParser("a defect")
    yield made
    await made.aclose()


def make_call(path: str, body: Any) -> tuple[Dialect, Call]:
    (mount,) = (mount for mount in MOUNTS if (mount.method, mount.path) == ("POST", path))
    catalogue = Catalogue(TEXTS + PROMPTS + AGENTS, lambda _: (PRESENCE,), {"other": "counting"})
    variables = {name: value for name, value in (("model", "counting"), ("version", "1")) if f"{{{name}}}" in path}
    return mount.dialect, Call(mount.operation, catalogue, {}, variables, {}, "r", json.dumps(body).encode())


def turns(count: int) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[number % 2], "content": f"turn {number}"} for number in range(count)]


@pytest.mark.parametrize("path", SENT)
async def test_the_same_is_asked_without_a_long_turn(parser: CallParser, path: str) -> None:
    body = {"model": "other", SENT[path]: turns(MANY), "max_tokens": 7, "unheard_of": 1}
    if path.startswith("/api"):
        body = {"model": "counting", SENT[path]: turns(MANY)}
    await parser.parse(*make_call(path, body))
    dialect, call = make_call(path, body)
    async with TurnCounter() as here:
        expected = dialect.parse(call)
        assert isinstance(expected, Ask)
        request = EncodedRequest.of(expected.route.spec, expected.request)
    async with TurnCounter() as apart:
        asked = await parser.parse(*make_call(path, body))
    assert isinstance(asked, Ask)
    assert asked.request == request
    assert (asked.route, asked.streaming) == (expected.route, expected.streaming)
    assert asked.headers == expected.headers
    assert type(asked.writer) is type(expected.writer)
    asked.writer.write(WORD)
    assert b"word" in asked.writer.end()
    assert apart.longest < MANY < here.longest


BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": turns(2)},
    "/v1/completions": {"prompt": ["one", "two"], "n": 2, "logprobs": 1},
    "/v1/embeddings": {"input": ["one", "two"]},
    "/score": {"text_1": "one", "text_2": ["two", "three"]},
    "/v1/score": {"text_1": "one", "text_2": ["two", "three"]},
    "/rerank": {"query": "one", "documents": ["two", "three"]},
    "/v1/rerank": {"query": "one", "documents": ["two", "three"]},
    "/v2/rerank": {"query": "one", "documents": ["two", "three"]},
    "/tokenize": {"prompt": "one"},
    "/detokenize": {"tokens": [1, 2]},
    "/": {"inputs": "one"},
    "/generate": {"inputs": "one"},
    "/generate_stream": {"inputs": "one"},
    "/chat_tokenize": {"messages": turns(2)},
    "/invocations": {"inputs": "one"},
    "/predictions/{model}": {"inputs": ["one", "two"]},
    "/predictions/{model}/{version}": {"inputs": "one"},
    "/models/{model}/invoke": {"prompt": "one"},
    "/endpoints/{model}/invocations": {"messages": turns(2)},
    "/endpoints/{model}/invocations-response-stream": {"inputs": "one"},
    "/v1/responses": {"input": "one", "store": True, "tools": [{"type": "function", "name": "f"}]},
    "/v1/responses/input_tokens": {"input": "one"},
    "/v1/responses/compact": {"input": "one"},
    "/v1/messages": {"messages": turns(2), "max_tokens": 9},
    "/v1/messages/count_tokens": {"messages": turns(2)},
    "/api/chat": {"messages": turns(2), "logprobs": True},
    "/api/generate": {"prompt": "one"},
    "/api/embed": {"input": ["one", "two"]},
    "/api/embeddings": {"prompt": "one"},
    "/mlc/v1/chat/completions": {"messages": turns(2), "user": "u"},
    "/mlc/v1/completions": {"prompt": ["one", "two"], "user": "u"},
    "/mlc/v1/embeddings": {"input": ["one", "two"]},
}
"""A body for each mount that takes large ones."""
BACKGROUND = {"/v1/responses": ({"background": True}, {"background": True, "stream": True})}
"""Further fields."""


async def test_every_large_body_can_be_parsed_apart(parser: CallParser) -> None:
    large = (mount for mount in MOUNTS if mount.large and not (mount.socket or mount.dialect.parses_here))
    assert {mount.path for mount in large} == {*BODIES}
    for path, fields in BODIES.items():
        for more in ({}, {"stream": True}, *BACKGROUND.get(path, ())):
            dialect, call = make_call(path, {"model": "counting", **fields, **more})
            with capture_logs() as lines:
                asked = await parser.parse(dialect, call)
            assert isinstance(asked, Ask), path
            assert not [line for line in lines if line["log_level"] != "info"], path
            requests = asked.request.requests if isinstance(asked.request, Batch) else (asked.request,)
            assert all(isinstance(request, EncodedRequest) for request in requests), path


async def test_refusals_are_the_same(parser: CallParser) -> None:
    wrong = [
        ("/v1/chat/completions", {"model": "counting", "messages": [{"role": "nobody", "content": "x"}]}),
        ("/v1/chat/completions", {"model": "unknown", "messages": turns(1)}),
        ("/v1/responses", {"model": "counting", "input": [{"type": "what"}]}),
        ("/v1/messages", {"model": "counting", "messages": turns(1)}),
        ("/api/v1/text-completion", {"prompt": 1}),
    ]
    for path, body in wrong:
        (dialect, call), (_, other) = make_call(path, body), make_call(path, body)
        with pytest.raises(TgError) as here:
            dialect.parse(call)
        with pytest.raises(type(here.value)) as apart:
            await parser.parse(dialect, other)
        assert vars(apart.value) == vars(here.value)
        assert other.route == call.route


async def test_a_dialect_that_no_other_process_can_import_parses_here(parser: CallParser) -> None:
    class Echo(Dialect):
        """Of this function alone: no other process can import it by its name."""

        @override
        def parse(self, call: Call) -> Answer:
            return Answer(call.body)

        @override
        def refuse(self, error: TgError, status: int, call: Call) -> Answer:
            return Answer(b"", status)

    answer = await parser.parse(Echo(), make_call("/v1/messages", 1)[1])
    assert answer == Answer(b"1")


LONG = "one " * 1000
REFUSED: dict[str, list[dict[str, Any]]] = {
    "/": [{"inputs": LONG}, {"inputs": LONG, "stream": True}, {"inputs": LONG, "stream": "yes"}],
    "/generate_stream": [{"inputs": LONG}],
    "/tokenize": [{"prompt": LONG}, {"inputs": LONG}],
    "/invocations": [
        *({"inputs": inputs, "stream": stream} for inputs in (LONG, [LONG], [], 7) for stream in (True, False, LONG)),
        *({"inputs": LONG, "model": model} for model in ("unknown", LONG, 7)),
        *({key: [LONG], "model": "unknown"} for key in ("messages", "prompt")),
        *(
            {"inputs": LONG, "stream": True, "parameters": {"output_formatter": name, "stop_sequences": [LONG]}}
            for name in ("json", "sse", "own", LONG, 7)
        ),
    ],
}
"""Bodies by which a refusal takes its shape."""
ERRORS = (BadRequest("b"), PayloadError("p"), NotFound("n"), RateLimited("r"), TooLarge("t"), ProtocolError("m"))


@pytest.mark.parametrize("path", REFUSED)
def test_what_is_abridged_is_refused_as_it_was(path: str) -> None:
    for data in (*(json.dumps(body).encode() for body in REFUSED[path]), b"[1]", b"{", b" " + b"1" * 1000):
        for error in ERRORS:
            answers = []
            for body in (data, make_call(path, {})[0].abridge(data)):
                dialect, call = make_call(path, {})
                call.body = body
                answers.append(dialect.refuse(error, error.status, call))
            assert answers[0] == answers[1], (data[:80], error)
            assert 0 < len(body) < 200


async def test_a_refusal_does_not_read_a_large_body_again(parser: CallParser) -> None:
    """It would be read here, and hold everybody up: `keys` of a million names take seconds."""
    for path in (*REFUSED, "/v1/messages"):
        for model in ("counting", "unknown"):
            dialect, call = make_call(path, {"inputs": LONG, "model": model, **dict.fromkeys(map(str, range(MANY)))})
            with suppress(TgError):
                await parser.parse(dialect, call)
            assert len(call.body) < 200, path
