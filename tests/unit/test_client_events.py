"""The SDK's reader of server-sent events: any cut of the same bytes, the same events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_client.server_sent_events import ServerSentEvents
from tg_schema.errors import ProtocolError

ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
LINES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n")).map(
        lambda text: b"data:" + text.encode()
    ),
    st.sampled_from(
        [b"", b"", b": keep-alive", b"event: error", b"data", b"data: ", b"id: 1", b"nonsense", b"\xff\x00"]
    ),
)


def read(*parts: bytes, longest: int = 1 << 20) -> list[bytes]:
    events = ServerSentEvents(longest)
    return [event for part in parts for event in events.feed(part)]


def plainly(lines: list[bytes]) -> list[bytes]:
    """What the specification says, for lines that are already cut."""
    events, data = [], []
    for line in lines:
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif not line and data:
            events.append(b"\n".join(data))
            data = []
    return events


@given(st.lists(LINES), st.data())
def test_any_cut_gives_what_the_specification_says(lines: list[bytes], data: st.DataObject) -> None:
    stream = b""
    for line in lines:
        end = data.draw(ENDS)
        stream += line + (b"\r\n" if end == b"\n" and not line and stream.endswith(b"\r") else end)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    parts = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(*parts) == plainly(lines)
    assert read(*(bytes([byte]) for byte in stream)) == plainly(lines)


@given(st.binary(), st.data())
def test_any_bytes_in_any_cut_give_the_same(stream: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(stream)))
    assert read(stream[:cut], stream[cut:]) == read(stream)


def test_a_byte_order_mark_may_begin_the_stream() -> None:
    assert read(b"\xef", b"\xbb\xbfda", b"ta: a\n\n") == [b"a"]


def test_an_event_without_its_end_is_none() -> None:
    assert read(b"data: a\n\ndata: b\n") == [b"a"]


@pytest.mark.parametrize("parts", [[b"data: " + b"x" * 60], [b"data: 0123\n"] * 12, [b"x"] * 65])
def test_what_never_ends_is_refused(parts: list[bytes]) -> None:
    with pytest.raises(ProtocolError, match="more than 64 bytes"):
        read(*parts, longest=64)


def test_the_bound_is_for_one_event() -> None:
    assert len(read(b"data: 0123456789\n\n" * 100, longest=64)) == 100
    assert len(read(*[b"data: 0123456789\n\n"] * 100, longest=64)) == 100
