"""Completions on the wire: bodies to records, and records to bytes, by tables."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.flow.open_gateway import CONFIG
from tg_gateway.dialects import CompletionWriter, FoundModel
from tg_gateway.dialects.openai.completion_request import CompletionBody, read_prompts, read_requests
from tg_gateway.dialects.openai.completion_writers import CompletionStreamWriter, encode_completion
from tg_schema import Sampling, TextCompletionRequest, TextCompletionResponse, Token
from tg_schema.errors import ProtocolError, Unavailable

Record = TextCompletionResponse
(ROUTE,) = CONFIG.routes("text-completion")
FOUND = FoundModel(ROUTE, "m", "lora", frozenset({"raw"}))
ASKED = TextCompletionRequest(model="m", adapter="lora", raw=True, prompt="p", sampling=Sampling(max_tokens=16))


def asked(**fields: Any) -> TextCompletionRequest:
    return msgspec.structs.replace(ASKED, **fields)


def sampled(**fields: Any) -> TextCompletionRequest:
    return asked(sampling=Sampling(**{"max_tokens": 16, **fields}))


BODIES: list[tuple[dict[str, Any], list[TextCompletionRequest]]] = [
    ({}, [ASKED]),
    ({"prompt": ["p", "q"]}, [ASKED, asked(prompt="q")]),
    ({"prompt": [1, 2]}, [asked(prompt=None, raw=False, prompt_ids=(1, 2))]),
    (
        {"prompt": [[1], [2, 3]]},
        [asked(prompt=None, raw=False, prompt_ids=(1,)), asked(prompt=None, raw=False, prompt_ids=(2, 3))],
    ),
    ({"stream": True, "stream_options": {"include_usage": True}}, [asked(streaming=True)]),
    ({"max_tokens": 5, "n": 2, "best_of": 3}, [sampled(max_tokens=5, n=2, best_of=3)]),
    ({"stop": "x", "seed": 1, "logit_bias": {"7": -100}}, [sampled(stop=("x",), seed=1, logit_bias={7: -100})]),
    ({"logprobs": 0}, [sampled(logprobs=0)]),
    ({"echo": True}, [asked(echo=True)]),
    ({"echo": True, "logprobs": 5}, [msgspec.structs.replace(sampled(logprobs=5, prompt_logprobs=5), echo=True)]),
    (
        {"echo": True, "logprobs": 2, "max_tokens": 0},
        [asked(operation="score", sampling=Sampling(prompt_logprobs=2))],
    ),
    ({"suffix": "s", "user": "u", "priority": 3}, [asked(suffix="s", user="u", priority=3)]),
    ({"top_k": 4, "ignore_eos": True, "min_tokens": 2}, [sampled(top_k=4, ignore_eos=True, min_tokens=2)]),
    ({"structured_outputs": {"choice": ["a", "b"]}}, [asked(choice=("a", "b"))]),
    ({"response_format": {"type": "json_object"}}, [asked(response_format="json")]),
    ({"temperature": None, "suffix": None, "return_token_ids": False}, [ASKED]),
]


@pytest.mark.parametrize(("fields", "requests"), BODIES)
def test_bodies_become_records(fields: dict[str, Any], requests: list[TextCompletionRequest]) -> None:
    body = msgspec.convert({"model": "m", "prompt": "p", **fields}, CompletionBody, strict=False)
    assert list(read_requests(body, read_prompts(body), FOUND)) == requests


def write(records: Sequence[Record], **options: Any) -> list[str]:
    """The choices of each event, and the usage; what is the same in all is left out."""
    writer = CompletionStreamWriter("m", 2, **options)
    data = (b"".join(writer.write(record) for record in records) + writer.end()).decode()
    head = r'data: \{"id":"cmpl-[0-9a-f]{32}","object":"text_completion","created":\d+,"model":"m","choices":'
    return [re.sub(head, "", event) for event in data.removesuffix("\n\n").split("\n\n")]


HALF = Token(1, "\N{REPLACEMENT CHARACTER}", -1.0, raw_bytes=b"\xe2")
TWO_TOKENS = (
    '[{"index":0,"text":"€","logprobs":{"text_offset":[0,0],"token_logprobs":[-1.0,-2.0],'
    r'"tokens":["bytes:\\xe2",""],"top_logprobs":[{"bytes:\\xe2":-1.0},{"":-2.0}]},"finish_reason":null}]}'
)
SCORED = (
    '[{"index":0,"text":"pq","logprobs":{"text_offset":[0,1],"token_logprobs":[null,-0.5],'
    '"tokens":["p","q"],"top_logprobs":[null,{"token_id:2":-0.5,"token_id:5":-1.0}]},"finish_reason":null}]}'
)
REST = Token(2, "", -2.0, raw_bytes=b"\x82\xac")
STREAMS: list[tuple[list[Record], dict[str, Any], list[str]]] = [
    (
        [Record(response="a"), Record(response="b", index=1), Record(finish_reason="length")],
        {},
        [
            '[{"index":0,"text":"a","logprobs":null,"finish_reason":null}]}',
            '[{"index":1,"text":"b","logprobs":null,"finish_reason":null}]}',
            '[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}]}',
            '[{"index":1,"text":"","logprobs":null,"finish_reason":"stop"}]}',
            "data: [DONE]",
        ],
    ),
    (
        [Record(in_token=2, out_token=1, finish_reason="stop"), Record(index=1, finish_reason="stop", in_token=2)],
        {"include_usage": True},
        [
            '[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}],"usage":null}',
            '[{"index":1,"text":"","logprobs":null,"finish_reason":"stop"}],"usage":null}',
            '[],"usage":{"prompt_tokens":4,"completion_tokens":1,"total_tokens":5}}',
            "data: [DONE]",
        ],
    ),
    (
        [
            Record(
                response="€", tokens=(HALF, Token(2, "", -2.0, raw_bytes=b"\x82\xac"), Token(3, "</s>", special=True))
            )
        ],
        {},
        [
            TWO_TOKENS,
            '[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}]}',
            '[{"index":1,"text":"","logprobs":null,"finish_reason":"stop"}]}',
            "data: [DONE]",
        ],
    ),
    (
        [Record(prompt_tokens=(Token(1, "p"), Token(2, "q", -0.5, ((2, -0.5), (5, -1.0)))))],
        {"scored": ("pq", (5,))},
        [
            SCORED,
            '[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}]}',
            '[{"index":1,"text":"","logprobs":null,"finish_reason":"length"}]}',
            "data: [DONE]",
        ],
    ),
]


@pytest.mark.parametrize(("records", "options", "events"), STREAMS)
def test_records_become_events(records: list[Record], options: dict[str, Any], events: list[str]) -> None:
    assert write(records, **options) == events


def test_a_failure_is_told_and_the_connection_cut() -> None:
    writer = CompletionStreamWriter("m")
    assert writer.cut_after_failure
    told = b'{"message":"gone","type":"server_error","param":null,"code":"unavailable"}'
    assert writer.fail(Unavailable("gone")) == b'data: {"error":%b}\n\n' % told


def test_an_answer_too_many_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="more answers"):
        CompletionStreamWriter("m", 2).write(Record(index=2, response="x"))
    writer = CompletionWriter(partial(encode_completion, model="m", answers=2))
    writer.write(Record(index=2, response="x"))
    with pytest.raises(ProtocolError, match="more answers"):
        writer.end()
