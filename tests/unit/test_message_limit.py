"""How a broker's limit is found: exactly enough, by few messages, and never above it."""

from hypothesis import given
from hypothesis import strategies as st

from tg_base.bus import MAX_MESSAGE_BYTES
from tg_base.bus.pulsar.message_limit import ROUNDING_BYTES, largest_taken


@given(st.integers(0, MAX_MESSAGE_BYTES - 1))
def test_the_largest_size_is_found_from_below(limit: int) -> None:
    asked: list[int] = []

    def takes(size: int) -> bool:
        asked.append(size)
        return size <= limit

    assert limit - ROUNDING_BYTES < largest_taken(takes) <= limit
    assert len(asked) <= 13
