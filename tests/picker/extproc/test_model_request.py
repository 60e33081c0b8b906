"""Bodies of all APIs, and what is none, against the reader of model, prompt and cap."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_picker.extproc.model_request import ModelRequest, read_model_request, rename_model
from tg_picker.pools import Prompt
from tg_schema.errors import BadRequest

NONE = Prompt("", 0)
READ = [
    (b'{"model":"m"}', ModelRequest("m", NONE)),
    (b'{"model":"m","prompt":"hi","max_tokens":5}', ModelRequest("m", Prompt("\x1eprompt\x1fhi", 10), 5)),
    (b'{"model":"m","system":"s","messages":[],"max_tokens":8}', ModelRequest("m", Prompt("\x1esystem\x1fs", 9), 8)),
    (b'{"model":"m","max_output_tokens":3}', ModelRequest("m", NONE, 3)),
    (b'{"model":"m","max_tokens":5,"max_completion_tokens":7}', ModelRequest("m", NONE, 7)),
    (b'{"model":"m","max_tokens":"5"}', ModelRequest("m", NONE)),
    (b'{"model":"m","stream":true}', ModelRequest("m", NONE, streamed=True)),
    (b'{"model":"m","stream":false}', ModelRequest("m", NONE)),
    (b'{"model":"m","stream":"true"}', ModelRequest("m", NONE)),
    (b'{"model":"m","max_tokens":-5}', ModelRequest("m", NONE)),
    (b'{"model":"m","max_tokens":1' + b"0" * 400 + b"}", ModelRequest("m", NONE)),
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


@pytest.mark.parametrize("field", [b'"\xff":1}', b'"messages":' + b"[" * 100_000])
def test_a_body_that_cannot_be_read_is_not_renamed(field: bytes) -> None:
    with pytest.raises(BadRequest, match="JSON"):
        rename_model(b'{"model":"m",' + field, "other")
