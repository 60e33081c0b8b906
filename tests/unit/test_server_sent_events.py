"""The bytes of an event stream, split anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_schema.errors import ProtocolError
from tg_schema.server_sent_events import ServerSentEvents

LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))
OTHER_LINES = st.sampled_from(
    [b": keep-alive", b":", b"event: message", b"id: 7", b"retry: 10", b"nonsense", b"datum: x"]
)


def read(parts: list[bytes], longest: int = 1024 * 1024) -> list[bytes]:
    events = ServerSentEvents(longest)
    return [event for part in parts for event in events.feed(part)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream's bytes, and the events that are in it by construction."""
    stream, expected = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])), []
    for lines in draw(st.lists(st.lists(TEXT, max_size=3), max_size=5)):
        for line in lines:
            colon = b"data: " if line.startswith(" ") else draw(st.sampled_from([b"data: ", b"data:"]))
            stream += colon + line.encode() + draw(LINE_ENDS)
            if draw(st.booleans()):
                stream += draw(OTHER_LINES) + draw(LINE_ENDS)
        stream += b"\n" if not stream.endswith(b"\r") else b"\n\n"
        if lines:
            expected.append("\n".join(lines).encode())
    return stream, expected


@st.composite
def split(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)))))
    return [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(st.data())
def test_any_split_gives_the_events_that_were_written(data: st.DataObject) -> None:
    stream, expected = data.draw(streams())
    assert read(data.draw(split(stream))) == expected


@given(st.lists(TEXT | st.just("x" * 2000), min_size=1), st.data())
def test_events_of_one_line_each_may_be_cut_anywhere(texts: list[str], data: st.DataObject) -> None:
    """The fast path, with less and with more of an event in the read before than it takes."""
    expected = [text.encode() for text in texts]
    stream = b"".join(b"data: %b\n\n" % text for text in expected)
    assert read(data.draw(split(stream + b"data: cut off"))) == expected


@given(st.binary(), st.data())
def test_any_split_of_any_bytes_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    assert read(data.draw(split(stream))) == read([stream]) == read([stream[i : i + 1] for i in range(len(stream))])


@pytest.mark.parametrize("end", ["\u2028", "\u0085", "\u000b", "\u000c", "\u2029", "\u001c"])
def test_only_cr_and_lf_end_a_line(end: str) -> None:
    text = f'{{"content":"a{end}b"}}'.encode()
    assert read([b"data: " + text + b"\n\n"]) == [text]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b"data: a\n\ndata: b\ndata: c\n\n", [b"a", b"b\nc"]),
        (b"data: a\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\n\n:\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\n\ndata:b\n\n", [b"a", b"b"]),
        (b"data: \n\ndata: \n\n", [b"", b""]),
        (b"data:  a\n\n", [b" a"]),
        (b": comment\n\n: comment\n\n", []),
        (b"event: ping\n\ndata: a\n\n", [b"a"]),
        (b"data: cut off\n", []),
        (b"\r\n\r\ndata: a\r\n\r\n", [b"a"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    ],
)
def test_events_of_the_specification(stream: bytes, expected: list[bytes]) -> None:
    assert read([stream]) == expected


@pytest.mark.parametrize("parts", [1, 7])
def test_a_line_without_end_is_refused_at_the_limit(parts: int) -> None:
    endless = b"data: " + b"x" * 100
    size = len(endless) // parts
    with pytest.raises(ProtocolError, match="more than 64 bytes"):
        read([endless[start : start + size] for start in range(0, len(endless), size)], longest=64)


def test_many_short_lines_are_refused_at_the_limit() -> None:
    with pytest.raises(ProtocolError, match="more than 64 bytes"):
        read([b"data: 0123456789\n"] * 10, longest=64)


def test_a_long_whole_event_is_refused_too() -> None:
    with pytest.raises(ProtocolError):
        read([b"data: " + b"x" * 100 + b"\n\n"], longest=64)


@pytest.mark.parametrize("cut", [1, 3, 40, 63, 64, 65, 66])
def test_an_event_of_exactly_the_limit_passes(cut: int) -> None:
    stream = b"data: " + b"x" * 57 + b"\n\n"
    assert read([stream[start : start + cut] for start in range(0, len(stream), cut)], longest=64) == [b"x" * 57]


def test_the_limit_is_for_one_event_and_not_for_the_stream() -> None:
    assert len(read([b"data: 0123456789\n\n"] * 100, longest=64)) == 100
    assert len(read([b"data: 0123456789\n\n" * 100], longest=64)) == 100
    assert len(read([b": a comment that is read and forgotten\n"] * 100, longest=64)) == 0


def test_a_byte_order_mark_is_one_at_the_very_beginning_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert read([mark + b"data: a\n\n"]) == read([mark, b"data: a\n", b"\n"]) == [b"a"]
    later = [b"data: a\n\n", mark + b"data: b\n\n"]
    assert read(later) == read([b"".join(later)]) == [b"a"]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([b"", b": keep-alive\n\n"]))), st.data())
def test_the_last_id_is_known_however_it_is_split(events: list[tuple[bool, bytes]], data: st.DataObject) -> None:
    numbers = [b"id: %d\n" % number if numbered else b"" for number, (numbered, _) in enumerate(events)]
    stream = b"".join([number + b"data: x\n\n" + filler for number, (_, filler) in zip(numbers, events, strict=True)])
    decoder = ServerSentEvents()
    read = [event for part in data.draw(split(stream)) for event in decoder.feed(part)]
    assert read == [b"x"] * len(events)
    assert decoder.last_id == next((b"%d" % int(each[4:]) for each in reversed(numbers) if each), b"")
