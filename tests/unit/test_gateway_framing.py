"""Bytes of server-sent events, against what the specification says."""

from hypothesis import given
from hypothesis import strategies as st

from tg_gateway.relay import KEEP_ALIVE, chunk, event, event_chunk


@given(st.binary())
def test_the_quick_way_is_the_same(data: bytes) -> None:
    assert event_chunk(data) == chunk(event(data))
    assert chunk(data).startswith(b"%x\r\n" % len(data))


def test_a_comment_is_an_event_without_data() -> None:
    assert KEEP_ALIVE.startswith(b":")
    assert KEEP_ALIVE.endswith(b"\n\n")
