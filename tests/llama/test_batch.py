import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_llama.engine.batch import shares
from tg_llama.engine.prefix_cache import common_prefix


@given(st.integers(0, 1000), st.lists(st.integers(1, 500), min_size=1, max_size=20))
def test_prompts_share_a_step_fairly(room: int, needs: list[int]) -> None:
    given_out = shares(room, needs)
    assert sum(given_out) == min(room, sum(needs)), "nothing is unused"
    assert all(got <= need for got, need in zip(given_out, needs, strict=True))
    unmet = [got for got, need in zip(given_out, needs, strict=True) if got < need]
    assert not unmet or max(given_out) - min(unmet) <= 1, "nobody gets more than one who needs more"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [([], [], 0), ([1], [], 0), ([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2, 3], 2), ([1, 2], [1, 2], 2), ([1], [2], 0)],
)
def test_a_common_beginning_ends_where_they_differ(one: list[int], other: list[int], same: int) -> None:
    assert common_prefix(one, other) == common_prefix(other, one) == same
