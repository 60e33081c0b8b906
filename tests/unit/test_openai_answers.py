"""Records -> chunks and bodies of chat completions: byte by byte."""

import re
from collections.abc import Sequence
from functools import partial

import msgspec
import pytest

from tg_gateway.dialects import CompletionWriter
from tg_gateway.dialects.chat.writers import ChatStreamWriter, encode_chat
from tg_schema import TextCompletionResponse, Token, ToolCallDelta
from tg_schema.errors import ProtocolError, Timeout

Record = TextCompletionResponse
HEAD = re.compile(
    rb'\{"id":"chatcmpl-[0-9a-f]{32}","object":"chat.completion(?:.chunk)?","created":\d+,"model":"m",'
    rb'(?:"system_fingerprint":"",)?'
)
LAST = Record(finish_reason="stop", in_token=3, out_token=2, end_of_stream=True)


def stream(*records: Record, n: int = 1, usage: bool = False) -> bytes:
    """All bytes of a stream."""
    writer = ChatStreamWriter("m", n, include_usage=usage)
    return b"".join(writer.write(record) for record in records) + writer.end()


def chunks(*records: Record, n: int = 1, usage: bool = False) -> list[str]:
    """What stands in each event after its head, which is the same in all."""
    *events, done, rest = stream(*records, n=n, usage=usage).split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    heads = {match[0] for event in events if (match := HEAD.search(event))}
    assert len(heads) == 1
    (head,) = heads
    return [event.removeprefix(b"data: " + head).removesuffix(b"}").decode() for event in events]


def whole(*records: Record, n: int = 1) -> str:
    """A whole answer after its head."""
    writer = CompletionWriter(partial(encode_chat, model="m", n=n))
    assert b"".join(writer.write(record) for record in records) == b""
    return HEAD.sub(b"", writer.end()).removesuffix(b"}").decode()


def choice(delta: str, finish: str = "null", index: int = 0, more: str = "") -> str:
    return f'"choices":[{{"index":{index},"delta":{{{delta}}},"finish_reason":{finish}{more}}}]'


STOP = choice("", '"stop"')
TOKEN = Token(7, "a", -0.5, ((7, -0.5), (8, -1.5)), ("a", "\ufffd"))


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        ([Record(response="a"), Record(response="b"), LAST], [
            choice('"role":"assistant","content":"a"'), choice('"content":"b"'), STOP,
        ]),
        ([Record(response='"\n\u2028\0é'), LAST], [
            choice('"role":"assistant","content":"\\"\\n\u2028\\u0000é"'), STOP,
        ]),
        ([Record(response="a", finish_reason="length", end_of_stream=True)], [
            choice('"role":"assistant","content":"a"'), choice("", '"length"'),
        ]),
        ([LAST], [choice('"role":"assistant","content":""', '"stop"')]),
        ([Record(response="", end_of_stream=True)], [choice('"role":"assistant","content":""', '"stop"')]),
        ([Record(reasoning="r"), Record(response="a"), LAST], [
            choice('"role":"assistant","reasoning_content":"r"'), choice('"content":"a"'), STOP,
        ]),
        ([Record(reasoning="r"), Record(reasoning="s", signature="o:x", response="a"), LAST], [
            choice('"role":"assistant","reasoning_content":"r"'),
            choice('"reasoning_content":"s"'),
            choice('"reasoning_details":[{"index":0,"type":"reasoning.text","text":"rs","signature":"o:x"}]'),
            choice('"content":"a"'),
            STOP,
        ]),
        ([Record(tool_calls=(ToolCallDelta(2, "c", "f", '{"a"'),)),
          Record(tool_calls=(ToolCallDelta(2, arguments=":1}"),)),
          Record(finish_reason="tool_calls", end_of_stream=True)], [
            choice(
                '"role":"assistant","tool_calls":[{"index":0,"id":"c","type":"function",'
                '"function":{"name":"f","arguments":"{\\"a\\""}}]'
            ),
            choice('"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]'),
            choice("", '"tool_calls"'),
        ]),
        ([Record(tool_calls=(ToolCallDelta(0, "c", "f", "{}", "google:s"),)), Record(end_of_stream=True)], [
            choice(
                '"role":"assistant","tool_calls":[{"index":0,"id":"c","type":"function",'
                '"function":{"name":"f","arguments":"{}"},"extra_content":{"tokengrid":{"signature":"google:s"}}}]'
            ),
            choice("", '"tool_calls"'),
        ]),
        ([Record(response="a", tokens=(TOKEN, Token(2, "", 0.0, special=True))),
          Record(tokens=(Token(9, "b", None, ((1, -2.0),), raw_bytes=b"\xf0"),)), LAST], [
            choice(
                '"role":"assistant","content":"a"',
                more=',"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],'
                '"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},'
                '{"token":"\ufffd","logprob":-1.5,"bytes":null}]}],"refusal":null}'
            ),
            choice(
                "", more=',"logprobs":{"content":[{"token":"b","logprob":-9999.0,"bytes":[240],'
                '"top_logprobs":[{"token":"token_id:1","logprob":-2.0,"bytes":null}]}],"refusal":null}'
            ),
            STOP,
        ]),
    ],
)  # fmt: skip
def test_chunks(records: Sequence[Record], wanted: list[str]) -> None:
    assert chunks(*records) == wanted


def test_usage_is_null_until_the_last_chunk() -> None:
    last = msgspec.structs.replace(LAST, cached_token=1, cache_write_token=0, reasoning_token=2)
    assert chunks(Record(response="a"), Record(response="b"), last, usage=True) == [
        choice('"role":"assistant","content":"a"') + ',"usage":null',
        choice('"content":"b"') + ',"usage":null',
        STOP + ',"usage":null',
        (
            '"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,'
            '"prompt_tokens_details":{"cached_tokens":1,"cache_write_tokens":0},'
            '"completion_tokens_details":{"reasoning_tokens":2}}'
        ),
    ]
    assert chunks(Record(response="a"), Record(end_of_stream=True), usage=True)[-1] == STOP + ',"usage":null'


def test_choices_begin_in_order_and_each_ends_once() -> None:
    answers = [
        Record(response="c", index=2),
        Record(response="a"),
        Record(finish_reason="stop", index=2),
        Record(finish_reason="length", index=0),
        Record(index=0, finish_reason="length", end_of_stream=True),
    ]
    assert chunks(*answers, n=3) == [
        choice('"role":"assistant"'),
        choice('"role":"assistant"', index=1),
        choice('"role":"assistant"', index=2),
        choice('"content":"c"', index=2),
        choice('"content":"a"'),
        choice("", '"stop"', index=2),
        choice("", '"length"'),
        choice('"content":""', '"stop"', index=1),
    ]


def test_an_answer_that_nobody_asked_for() -> None:
    with pytest.raises(ProtocolError, match="more answers than were asked for"):
        stream(Record(response="a", index=1))
    with pytest.raises(ProtocolError, match="more answers than were asked for"):
        whole(Record(response="a", index=1))


def test_a_failure_is_the_last_event() -> None:
    writer = ChatStreamWriter("m")
    assert writer.cut_after_failure
    told = writer.fail(Timeout("too slow"))
    assert told == b'data: {"error":{"message":"too slow","type":"server_error","param":null,"code":"timeout"}}\n\n'


USAGE = '"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}'
CALLS = (
    ToolCallDelta(1, "d", "g", "{}", "google:s"),
    ToolCallDelta(0, "c", "f", '{"a"'),
    ToolCallDelta(0, arguments=":1}"),
)


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        (
            [Record(response="a"), Record(response="b"), LAST],
            (
                '"choices":[{"index":0,"message":{"role":"assistant","content":"ab","refusal":null},"finish_reason":"stop",'
                f'"logprobs":null}}],{USAGE}'
            ),
        ),
        (
            [Record(end_of_stream=True)],
            (
                '"choices":[{"index":0,"message":{"role":"assistant","content":"","refusal":null},"finish_reason":"stop",'
                '"logprobs":null}]'
            ),
        ),
        (
            [Record(reasoning="r", signature="o:x"), Record(tool_calls=CALLS), Record(end_of_stream=True)],
            (
                '"choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":null,"reasoning_content":"r",'
                '"reasoning_details":[{"index":0,"type":"reasoning.text","text":"r","signature":"o:x"}],'
                '"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\\"a\\":1}"}},'
                '{"id":"d","type":"function","function":{"name":"g","arguments":"{}"},'
                '"extra_content":{"tokengrid":{"signature":"google:s"}}}]},"finish_reason":"tool_calls","logprobs":null}]'
            ),
        ),
        (
            [
                Record(response="b", index=1),
                Record(response="a", tokens=(Token(1, "a", -1.0),)),
                Record(finish_reason="length", index=1),
                LAST,
            ],
            (
                '"choices":[{"index":0,"message":{"role":"assistant","content":"a","refusal":null},"finish_reason":"stop",'
                '"logprobs":{"content":[{"token":"a","logprob":-1.0,"bytes":[97],"top_logprobs":[]}],"refusal":null}},'
                '{"index":1,"message":{"role":"assistant","content":"b","refusal":null},"finish_reason":"length",'
                f'"logprobs":null}}],{USAGE}'
            ),
        ),
    ],
)
def test_bodies(records: Sequence[Record], wanted: str) -> None:
    assert whole(*records, n=1 + max(record.index for record in records)) == wanted
