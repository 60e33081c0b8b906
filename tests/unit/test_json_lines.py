"""Lines of JSON: any split of the bytes gives the same lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_base.llm.http import JsonLines
from tg_schema.errors import ProtocolError

TEXTS = st.lists(st.text(st.sampled_from('a€\u2028\u0085\r\x1c"\\ \n👩'), max_size=6), max_size=8)


@given(TEXTS, st.lists(st.integers(1, 7), min_size=1))
def test_any_split_gives_the_same_lines(texts: list[str], sizes: list[int]) -> None:
    data = b"".join(json.dumps(text, ensure_ascii=False).encode() + b"\r\n" for text in texts)
    lines = JsonLines()
    found: list[bytes] = []
    start = turn = 0
    while start < len(data):
        size = sizes[turn % len(sizes)]
        found += lines.feed(data[start : start + size])
        start, turn = start + size, turn + 1
    assert [json.loads(line) for line in found] == texts


def test_blank_lines_are_none_and_a_cut_off_line_is_none() -> None:
    assert JsonLines().feed(b'\n \r\n{"a":1}\n\n{"b"') == [b'{"a":1}']


@pytest.mark.parametrize("pieces", [(b"x" * 11,), (b"x" * 6, b"x" * 5), (b"[1]\n", b"x" * 10, b"x")])
def test_a_line_has_a_longest(pieces: tuple[bytes, ...]) -> None:
    lines = JsonLines(longest=10)
    for piece in pieces[:-1]:
        lines.feed(piece)
    with pytest.raises(ProtocolError):
        lines.feed(pieces[-1])
