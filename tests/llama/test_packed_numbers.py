"""Numbers of a packed mask are those of JSON, however they are written; what is no number is refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tg_base.runtime import finish
from tg_llama.core.logit_bias import read_numbers
from tg_schema.errors import BadRequest

WHOLE = st.from_regex(r"\A-?(0|[1-9][0-9]{0,2})\Z")
FRACTION = st.from_regex(r"\A\.[0-9]{1,28}\Z")
EXPONENT = st.from_regex(r"\A[eE][+-]?[0-9]{1,2}\Z")
SPELLED = st.tuples(WHOLE, st.just("") | FRACTION, st.just("") | st.just("") | EXPONENT).map("".join)
WRITTEN = st.floats(-100, 100).map(str) | st.integers(-100, 100).map(str)
ENTRIES = st.lists(st.tuples(st.integers(0, 2 * 10**9), WRITTEN | SPELLED), min_size=1)


@settings(max_examples=200)
@given(ENTRIES, st.integers(8, 300))
def test_any_spelling_gives_the_number_of_json(entries: list[tuple[int, str]], size: int) -> None:
    tokens, biases = finish(read_numbers(",".join(f"{token},{bias}" for token, bias in entries), size))
    assert [*map(int, tokens)] == [token for token, _ in entries]
    assert [*map(float, biases)] == [json.loads(bias) for _, bias in entries]


NO_PAIR = (
    *("5,.5", "5,5.", "5,1.2.3", "5,1e", "5,e1", "5,1.e1", "5,+1.5", "5,--1.5", "5,1.5-", "5,01.5", "5,-01.5", "5,-.5"),
    *(
        "5,1.5.7,2",
        "5.0,1.5",
        "5e0,1.5",
        "05,1.5",
        "-5-,1.5",
        "5,1.5e400",
        "5,NaN",
        "5,Infinity",
        "5,1 .5",
        "5,true",
        "5,[1]",
        "5,1],[6,2",
        "5,",
        ",1.5",
        "5,-",
    ),
)


@pytest.mark.parametrize("entry", NO_PAIR)
@pytest.mark.parametrize("place", [0, 1, 199, 200])
def test_one_wrong_number_among_many(entry: str, place: int) -> None:
    entries = [f"{token},1.5" for token in range(200)]
    entries.insert(place, entry)
    with pytest.raises(BadRequest, match=r"sampling\.logit_bias"):
        finish(read_numbers(",".join(entries)))
