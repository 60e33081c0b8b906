"""A mask is read in slices as it is in one piece, wherever they are cut; what is none is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_base.runtime import finish
from tg_doors.lmtp import mask
from tg_schema.errors import BadRequest

SPACES = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")])


@given(st.dictionaries(st.integers(0, 10**6), st.integers(-100, 100) | st.just(-0.5), min_size=1), SPACES, st.data())
def test_slices_give_what_the_whole_gives(
    bias: dict[int, float], separators: tuple[str, str], data: st.DataObject
) -> None:
    raw = json.dumps(bias, separators=separators).encode()
    assert finish(mask.read_mask(raw, data.draw(st.integers(1, 60)))) == finish(mask.read_mask(raw)) == bias


@pytest.mark.parametrize("wrong", ['{"1": "a,b"}', "[1, 2]", '{"x": 1}', '{"1": 101}', '{"1": [1, 2]}', '"{,}"', "5"])
def test_what_is_no_mask(wrong: str) -> None:
    raw = wrong.encode()
    with pytest.raises(BadRequest):
        finish(mask.read_mask(raw))


def test_no_mask() -> None:
    assert finish(mask.read_mask(b"null")) is None
