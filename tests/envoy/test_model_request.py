"""Bodies of all APIs, and what is none, against the reader of model, prompt and cap."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_gateway.envoy.model_request import MAX_PREFIX_BYTES, ModelRequest, read_model_request, rename_model
from tg_schema.errors import BadRequest

READ = [
    (b'{"model":"m"}', ModelRequest("m", "", 0)),
    (b'{"model":"m","prompt":"hi","max_tokens":5}', ModelRequest("m", '"hi"', 4, 5)),
    (b'{"messages":[{"role":"user"}],"model":"m","tools":[1]}', ModelRequest("m", '[1][{"role":"user"}]', 20)),
    (b'{"model":"m","system":"s","messages":[],"max_tokens":8}', ModelRequest("m", '"s"[]', 5, 8)),
    (b'{"model":"m","instructions":"i","input":"x","max_output_tokens":3}', ModelRequest("m", '"i""x"', 6, 3)),
    (b'{"model":"m","max_tokens":5,"max_completion_tokens":7}', ModelRequest("m", "", 0, 7)),
    (b'{"model":"m","max_tokens":"5"}', ModelRequest("m", "", 0)),
    (b'{"model":"m","stream":true}', ModelRequest("m", "", 0, streamed=True)),
    (b'{"model":"m","stream":false}', ModelRequest("m", "", 0)),
    (b'{"model":"m","stream":"true"}', ModelRequest("m", "", 0)),
    (b'{"model":"m","max_tokens":-5}', ModelRequest("m", "", 0)),
    (b'{"model":"m","max_tokens":1' + b"0" * 400 + b"}", ModelRequest("m", "", 0)),
]


@pytest.mark.parametrize(("body", "found"), READ)
def test_what_a_picker_needs(body: bytes, found: ModelRequest) -> None:
    assert read_model_request(body) == found


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "JSON"),
        (b"hi", "JSON"),
        (b"[]", "JSON"),
        (b'{"model":"m"', "JSON"),
        (b"{}", "`model`"),
        (b'{"model":5}', "`model`"),
        (b'{"model":""}', "`model`"),
        (b'{"model":null}', "`model`"),
        (b'{"model":"\xff"}', "JSON"),
        (b'{"model":"m","messages":' + b"[" * 100_000, "JSON"),
    ],
)
def test_what_is_no_request_is_refused_in_words(body: bytes, word: str) -> None:
    with pytest.raises(BadRequest, match=word):
        read_model_request(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(BadRequest):
        read_model_request(body)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3))


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5), st.text(max_size=10))
def test_a_rename_changes_the_model_alone(fields: dict[str, object], model: str) -> None:
    renamed = rename_model(msgspec.json.encode({**fields, "model": "old"}), model)
    assert msgspec.json.decode(renamed) == {**fields, "model": model}


def test_of_a_long_prompt_only_its_beginning_is_kept() -> None:
    text = "x" * (2 * MAX_PREFIX_BYTES)
    found = read_model_request(msgspec.json.encode({"model": "m", "system": text, "messages": [text]}))
    assert (len(found.prompt), found.prompt_bytes) == (MAX_PREFIX_BYTES, 2 * len(text) + 6)


def test_a_body_whose_field_names_are_no_text_is_not_renamed() -> None:
    with pytest.raises(BadRequest, match="JSON"):
        rename_model(b'{"model":"m","\xff":1}', "other")
