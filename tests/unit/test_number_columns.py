"""Numbers that are read by columns have the same floats as those that JSON's reader reads, however they are written."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tg_base.runtime import finish
from tg_flow.llama import packed_numbers
from tg_flow.llama.number_columns import MAX_READ_AGAIN, read_columns
from tg_flow.llama.number_ends import find_ends
from tg_flow.llama.packed_numbers import read_numbers
from tg_schema.errors import BadRequest

WHOLE = st.from_regex(r"\A-?(0|[1-9][0-9]{0,2})\Z")
FRACTION = st.from_regex(r"\A\.[0-9]{1,28}\Z")
EXPONENT = st.from_regex(r"\A[eE][+-]?[0-9]{1,2}\Z")
SPELLED = st.tuples(WHOLE, st.just("") | FRACTION, st.just("") | st.just("") | EXPONENT).map("".join)
WRITTEN = st.floats(-100, 100).map(str) | st.integers(-100, 100).map(str)
ENTRIES = st.lists(st.tuples(st.integers(0, 2 * 10**9), WRITTEN | SPELLED), min_size=1)


def float32(text: str) -> bytes:
    """The bits of a bias."""
    return bits(*struct.unpack("f", struct.pack("f", json.loads(text))))


def bits(bias: float) -> bytes:
    """But for the sign of zero, which is without effect."""
    return struct.pack("f", bias + 0.0)


@settings(max_examples=200)
@given(ENTRIES, st.integers(8, 300))
def test_any_spelling_gives_the_float_of_json(entries: list[tuple[int, str]], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_numbers, "SLICE_BYTES", size)
        try:
            wanted = [float32(bias) for _, bias in entries]
        except OverflowError:
            with pytest.raises(BadRequest, match=r"sampling\.logit_bias"):
                finish(read_numbers(",".join(f"{token},{bias}" for token, bias in entries)))
            return
        tokens, biases = finish(read_numbers(",".join(f"{token},{bias}" for token, bias in entries)))
    assert [*map(int, tokens)] == [token for token, _ in entries]
    assert [bits(bias) for bias in biases] == wanted


# The first two are in the middle, where the even float counts: the one below, and the one above.
@pytest.mark.parametrize(
    "bias",
    ["64.000003814697265625", "64.000011444091796875", "64.0000038146972", "64.0000038146973", "64.00000381469727"],
)
def test_numbers_next_to_the_middle_of_two_floats(bias: str) -> None:
    pairs = read_columns(f"5,1.5,7,-{bias},9,{bias},".encode())
    assert pairs is not None
    assert [bits(each) for each in pairs.biases] == [*map(float32, ("1.5", f"-{bias}", bias))]


@pytest.mark.parametrize("bias", ["-12.3456", "7", "100.0", "0.1234567890123456", "-99.99999999999999"])
@pytest.mark.parametrize("other", ["0.5", "-100", "3e-7", "1E+1"])
def test_what_programs_write_is_read_by_columns(bias: str, other: str) -> None:
    text = f"151936,{bias},8,{bias},9,{other},151940,{bias},3,5"
    pairs = read_columns(text.encode())
    assert pairs is not None
    assert (pairs.tokens.tolist(), pairs.size) == ([151936, 8, 9, 151940], len(text) - len("3,5"))
    assert [bits(each) for each in pairs.biases] == [*map(float32, (bias, bias, other, bias))]


def test_too_many_exponents_are_left_to_the_reader_of_json() -> None:
    assert read_columns(b"5,1e1," * MAX_READ_AGAIN) is not None
    assert read_columns(b"5,1e1," * (MAX_READ_AGAIN + 1)) is None
    assert finish(read_numbers("5,1e1," * MAX_READ_AGAIN + "5,1e1,6,2"))[1].tolist() == [10] * MAX_READ_AGAIN + [10, 2]


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


@pytest.mark.parametrize(("text", "is_looked_at"), [(b"5,1,5,1,", True), (b"5,1,5,1,,", False), (b",,,,", False)])
def test_more_marks_than_digits_are_not_looked_at(text: bytes, is_looked_at: bool) -> None:
    """Who sends a megabyte of commas would hold the event loop for milliseconds."""
    assert (find_ends(np.frombuffer(text, np.uint8), 0) is not None) == is_looked_at
