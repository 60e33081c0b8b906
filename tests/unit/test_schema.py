"""Records and codec without a broker: what is written, what is read, and what is refused."""

import json
import pickle
from typing import Any

import msgspec
import pytest

from tg_schema import (
    AgentRequest,
    AgentResponse,
    AgentStep,
    Error,
    ImagePart,
    Message,
    ModelInfo,
    PromptRequest,
    PromptResponse,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    TextPart,
    Token,
    Tool,
    ToolCall,
    ToolCallDelta,
    Usage,
    decode,
    encode,
)
from tg_schema.completion import COUNTS
from tg_schema.conversation import ForeignPart, ReasoningPart
from tg_schema.errors import BadRequest
from tg_schema.service_spec import AGENT, PROMPT, TEXT_COMPLETION, ServiceSpec
from tg_schema.text_completion import Foreign, Reasoning
from tg_schema.tool import ToolRequest, ToolResponse

TEXT = 'a "quoted"\n\u2028 \U0001f600 ä \\ \x7f\x00'
ERROR = Error("timeout", TEXT, 1.5, "total", 5000, 4096)
SAMPLING = Sampling(
    *(0.5, 0.9, 40, 100, ("x", TEXT), 7, 0.1, -0.1, 0, 2, 3, 0.1, 0.9, 1.1, -1.0, {5: -100.0}, 1, True, (2,), True, 4),
    end_token=True,
    packed_bias="5,-100",
    packed_floats="AACAPw==",
)
TOKEN = Token(1, TEXT, -0.5, ((2, -1.0), (3, -2.0)), ("b", "c"), b"\xc3", True)
STEP = AgentStep(TEXT, "search", {"q": TEXT, "": ""}, "", "u")

CALL = ToolCall("c1", "search", '{"q": "x"}', "s3", "5m")
TURNS = (
    Message("developer", (TextPart(TEXT, "1h"), ForeignPart("anthropic", {"type": "document"}))),
    Message("user", (TextPart(TEXT), ImagePart(data="aGk="), ImagePart(media_type="image/jpeg", url="https://x/y"))),
    Message("assistant", (ReasoningPart(TEXT, "s1"), TextPart("b")), (CALL,)),
    Message("tool", "42", tool_call_id="c1", name="search", error=True, cache="5m"),
)
TOOL = Tool("search", TEXT, {"type": "object", "properties": {"q": {"type": "string"}}}, strict=True, cache="5m")
DELTA = ToolCallDelta(1, "c1", "search", '{"q', "s2")

FULL: list[Any] = [
    ERROR,
    SAMPLING,
    TOKEN,
    STEP,
    TextCompletionRequest(
        TEXT,
        "p",
        True,
        "m",
        SAMPLING,
        "json",
        {"type": "object", "n": [1, None, 1.5]},
        TURNS,
        (TOOL,),
        "auto",
        "completion",
        Reasoning("high", 1000),
        False,
        ("search",),
        "a+",
        ("a", "b"),
        True,
        (1, 2),
        (3,),
        "end",
        True,
        "lora",
        "u",
        1,
        "key",
        ("t",),
        Foreign("anthropic", {"container": "x"}, ({"type": "web_search"},), ("beta-1",)),
        ((1, 2), (3,)),
        True,
        "last",
        64,
        True,
        "query",
        512,
        True,
        "lora.gguf",
        "place",
        "where it is",
        schema_strict=True,
        continuation=(TEXT, "more"),
    ),
    TextCompletionResponse(
        ERROR,
        TEXT,
        True,
        (ModelInfo("m", "o", 1, 512, 2048, 192, (2, 3)),),
        (1, 2),
        ((0.5, -0.5),),
        (7, 9),
        index=1,
        signature="s1",
        stopped_by="x",
        seed=7,
        prompt_tokens=(TOKEN,),
        cache_write_token=2,
        in_token=0,
        out_token=7,
        model="m",
        finish_reason="stop",
        reasoning="why",
        tokens=(TOKEN, TOKEN),
        tool_calls=(DELTA,),
        cached_token=3,
        reasoning_token=4,
    ),
    PromptRequest("template", {"a": '"json"', "b": TEXT}, True),
    PromptResponse(ERROR, TEXT, '{"a": [1]}', True, 1, 2, "m", "stop"),
    AgentRequest(TEXT, "state", ("a", "b"), (STEP, AgentStep()), "u", True, "react"),
    AgentResponse("thought", TEXT, True, True, ERROR, "m1", ("a",), "search", "{}", "c1", 1, 2, "m", "stop"),
    ToolRequest("search", '{"q": "x"}'),
    ToolResponse(ERROR, TEXT, "{}", True),
]
SEED_DEFAULTS: list[tuple[Any, dict[str, Any]]] = [
    (TextCompletionRequest, {"system": None, "prompt": None, "streaming": False}),
    (
        TextCompletionResponse,
        dict.fromkeys(("error", "response", "in_token", "out_token", "model")) | {"end_of_stream": False},
    ),
    (PromptRequest, {"id": None, "terms": None, "streaming": False}),
    (PromptResponse, {"error": None, "text": None, "object": None, "end_of_stream": False}),
    (AgentStep, dict.fromkeys(("thought", "action", "arguments", "observation", "user"))),
    (AgentRequest, dict.fromkeys(("question", "state", "group", "history", "user")) | {"streaming": False}),
    (AgentResponse, {"chunk_type": None, "content": None, "end_of_message": False, "end_of_dialog": False}),
    (Error, {"type": None, "message": None}),
]
BAD_BYTES = [
    b"",
    b"{",
    b"nonsense",
    b"[]",
    b"null",
    b'"text"',
    b"\xff\xfe",
    b'{"prompt": "\xff"}',
    b'{"prompt": "\xed\xa0\x80"}',
    b'{"prompt": "\\ud800"}',
    b'{"prompt": 1}',
    b'{"prompt": ["a"]}',
    b'{"streaming": "yes"}',
    b'{"streaming": 1}',
    b'{"sampling": {"temperature": NaN}}',
    b'{"sampling": {"temperature": Infinity}}',
    b'{"sampling": {"temperature": "0.5"}}',
    b'{"sampling": {"max_tokens": 1.5}}',
    b'{"sampling": {"max_tokens": 1' + b"0" * 5000 + b"}}",
    b'{"prompt": "a"} {"prompt": "b"}',
    b"[" * 100_000,
    b'{"schema": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    b'{"unknown": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
]


def short(data: bytes) -> str:
    """A test's name."""
    return repr(data[:40])


@pytest.mark.parametrize("record", FULL, ids=lambda record: type(record).__name__)
def test_every_field_round_trips(record: Any) -> None:
    assert all(getattr(record, name) is not None for name in record.__struct_fields__)
    assert decode(type(record), encode(record)) == record


@pytest.mark.parametrize("record", FULL, ids=lambda record: type(record).__name__)
def test_each_field_round_trips_alone(record: Any) -> None:
    written = json.loads(encode(record))
    for name in record.__struct_fields__:
        required = {"id": 1, "text": ""} if type(record) is Token else {}
        alone = decode(type(record), json.dumps(required | {name: written[name]}))
        assert getattr(alone, name) == getattr(record, name)


@pytest.mark.parametrize(("kind", "defaults"), SEED_DEFAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_missing_fields_take_the_specifications_defaults(kind: Any, defaults: dict[str, Any]) -> None:
    empty = decode(kind, b"{}")
    assert {name: getattr(empty, name) for name in defaults} == defaults


@pytest.mark.parametrize("kind", [TextCompletionResponse, PromptResponse, AgentResponse])
def test_a_response_writes_its_error_and_what_is_set(kind: Any) -> None:
    assert encode(kind()) == b'{"error":null}'


def test_a_request_writes_what_every_peer_knows_and_what_is_set() -> None:
    assert encode(TextCompletionRequest()) == b'{"system":null,"prompt":null,"streaming":false}'
    asked = TextCompletionRequest(prompt="p", sampling=Sampling(min_p=0.5))
    assert encode(asked) == b'{"system":null,"prompt":"p","streaming":false,"sampling":{"min_p":0.5}}'


@pytest.mark.parametrize(
    "fields",
    [
        *({"n": 1}, {"n": 1, "best_of": 1}, {"best_of": 1}, {"min_tokens": 0}, {"logit_bias": {}}),
        # Of a search with beams alone, where 1 is its default.
        {"length_penalty": 1.0},
    ],
)
def test_sampling_does_not_write_what_says_nothing(fields: dict[str, Any]) -> None:
    """An older processor refuses a request with a field of sampling that it does not know."""
    for sampling in (Sampling(**fields), decode(Sampling, json.dumps(fields))):
        assert (encode(sampling), sampling.features) == (b"{}", frozenset())


@pytest.mark.parametrize(("kind", "defaults"), SEED_DEFAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_null_is_read_wherever_the_specification_has_a_field(kind: Any, defaults: dict[str, Any]) -> None:
    record = decode(kind, json.dumps(dict.fromkeys(defaults)))
    assert all(getattr(record, name) is None for name in defaults)


@pytest.mark.parametrize("kind", [TextCompletionResponse, PromptResponse, AgentResponse])
def test_a_record_without_an_error_says_so(kind: Any) -> None:
    assert b'"error":null' in encode(kind())
    assert not decode(kind, b'{"error": null}').last
    assert decode(kind, b'{"error": {}}').last


@pytest.mark.parametrize("record", FULL, ids=lambda record: type(record).__name__)
def test_unknown_fields_are_ignored(record: Any) -> None:
    more = json.loads(encode(record)) | {"unknown": {"a": [1, {"b": None}]}, "": 0}
    assert decode(type(record), json.dumps(more)) == record


def test_what_a_plain_peer_of_the_predecessor_writes_is_read() -> None:
    body = b'{"operation":"completion","system":"s","prompt":"p","streaming":true,"response_format":null,"schema":null}'
    assert decode(TextCompletionRequest, body) == TextCompletionRequest("s", "p", True, operation="completion")


@pytest.mark.parametrize("data", BAD_BYTES, ids=short)
def test_bad_bytes_are_a_bad_request_with_a_short_sentence(data: bytes) -> None:
    with pytest.raises(BadRequest) as refused:
        decode(TextCompletionRequest, data)
    assert 0 < len(refused.value.message) < 300


def test_a_long_word_of_the_client_is_not_repeated() -> None:
    data = json.dumps({"messages": [{"role": "x" * 100_000}]})
    with pytest.raises(
        BadRequest, match=r"^wrong field: Invalid enum value 'x+\.\.\.x+' - at `\$\.messages\[0\]\.role`$"
    ) as error:
        decode(TextCompletionRequest, data)
    assert len(error.value.message) < 500


def test_a_repeated_field_counts_once_and_the_last_time() -> None:
    assert decode(TextCompletionRequest, b'{"prompt": "a", "prompt": "b"}').prompt == "b"


def test_a_piece_has_every_count_of_a_usage_on_the_wire_under_its_name() -> None:
    counts = Usage(*range(1, len(COUNTS) + 1))
    piece = TextCompletionResponse(response="x").with_usage(counts)
    assert decode(TextCompletionResponse, encode(piece)).usage == counts
    assert json.loads(encode(piece)).items() >= msgspec.structs.asdict(counts).items()


@pytest.mark.parametrize(
    ("pieces", "total"),
    [
        ([], Usage()),
        ([Usage(), Usage()], Usage()),
        ([Usage(3), Usage(), Usage(4, 1)], Usage(7, 1)),
        ([Usage(cached_token=0), Usage(reasoning_token=2)], Usage(cached_token=0, reasoning_token=2)),
    ],
)
def test_an_unknown_count_stays_unknown_and_a_zero_is_counted(pieces: list[Usage], total: Usage) -> None:
    assert Usage.total(TextCompletionResponse().with_usage(piece) for piece in pieces) == total
    assert sum(pieces, Usage()) == total


@pytest.mark.parametrize("kind", [TextCompletionResponse, PromptResponse, AgentResponse])
def test_a_finish_reason_of_a_newer_peer_is_a_plain_end(kind: Any) -> None:
    newer = {"finish_reason": "paused", "model": "m", "out_token": 3, "later": [1]}
    assert decode(kind, json.dumps(newer)) == kind(finish_reason="stop", model="m", out_token=3)
    for wrong in ({"finish_reason": 5}, {**newer, "model": 5}, {**newer, "out_token": -1}, [newer]):
        with pytest.raises(BadRequest, match="wrong field"):
            decode(kind, json.dumps(wrong))


@pytest.mark.parametrize("spec", [TEXT_COMPLETION, PROMPT, AGENT, ServiceSpec("mine", ToolRequest, ToolResponse)])
def test_a_service_is_the_same_in_another_process(spec: ServiceSpec[Any, Any]) -> None:
    again = pickle.loads(pickle.dumps(spec))
    # Both are keys of caches there.
    assert (again, hash(again)) == (spec, hash(spec))
