"""How deep JSON is nested: exact at the limit, wherever brackets, quotes and backslashes stand in strings."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_base.llm import ObjectSchema
from tg_base.runtime import WorkerPool
from tg_schema import TextCompletionRequest, decode
from tg_schema.codec import MAX_DEPTH, decode_json, encode_request, is_too_deep
from tg_schema.errors import BadRequest

TEXTS = st.text(alphabet='[]{}"\\n,: a\u00e9', max_size=12)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_the_depth_is_that_of_the_value(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    depth = depth_of(value)
    for data in (text, text.encode()):
        assert not is_too_deep(data, depth)
        assert not depth or is_too_deep(data, depth - 1)


@pytest.mark.parametrize("opening", ["[", '{"a":', '["]",', '{"a":"\\\\","b\\"]":0,"":'])
def test_a_value_at_the_limit_is_read_and_one_above_is_not(opening: str) -> None:
    closing = "]" if opening.startswith("[") else "}"
    for levels, inmost in ((MAX_DEPTH, "0"), (MAX_DEPTH - 1, "[]")):
        assert decode_json(opening * levels + inmost + closing * levels)
    with pytest.raises(RecursionError):
        decode_json(opening * MAX_DEPTH + "[]" + closing * MAX_DEPTH)


def test_what_can_be_sent_can_be_read() -> None:
    """A request at the limit passes; one above is refused where it is sent, and one far above where it is read."""
    schema: dict[str, Any] = {}
    for _ in range(MAX_DEPTH - 2):
        schema = {"not": schema}
    request = TextCompletionRequest(prompt="hi", schema=schema)
    data = encode_request(request)
    assert decode(TextCompletionRequest, data) == request
    with pytest.raises(BadRequest, match=r"^the request is nested too deep$"):
        encode_request(msgspec.structs.replace(request, schema={"not": schema}))
    with pytest.raises(BadRequest, match=r"^not valid JSON: nested too deep$"):
        decode(TextCompletionRequest, data[:-1] + b',"unknown":' + b"[" * 600 + b"]" * 600 + b"}")


async def test_a_deep_answer_ends_no_process() -> None:
    anything = ObjectSchema({"$defs": {"n": {"items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"})
    checkers = WorkerPool()
    assert await anything.fault(decode_json("[" * MAX_DEPTH + "]" * MAX_DEPTH), checkers) is None
    await checkers.aclose()
    with pytest.raises(RecursionError):
        decode_json("[" * 20_000 + "]" * 20_000)


def test_a_part_of_another_text_is_read_however_long_it_is() -> None:
    class Envelope(msgspec.Struct):
        part: msgspec.Raw

    part = decode(Envelope, b'{"part":{"prompt":"%b"}}' % (b"x" * 2 * MAX_DEPTH)).part
    assert decode(TextCompletionRequest, part).prompt == "x" * 2 * MAX_DEPTH
    deep = decode(Envelope, b'{"part":%b%b}' % (b"[" * MAX_DEPTH, b"]" * MAX_DEPTH)).part
    assert not is_too_deep(deep)
    assert is_too_deep(deep, MAX_DEPTH - 1)
