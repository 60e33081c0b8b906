"""Which blocks of a Markdown text are complete while it grows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_cli.markdown_screen import split_blocks


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", []),
        ("a", []),
        ("a\nb\n\n", []),
        ("a\n\nb", ["a\n\n"]),
        ("a\n\nb\n \nc", ["a\n\n", "b\n \n"]),
        ("```\na\n\nb\n", []),
        ("```\na\n\nb\n```\n\n", []),
        ("```\na\n\nb\n```\n\nc", ["```\na\n\nb\n```\n\n"]),
        ("````\n```\n\na\n\nb", []),
        ("~~~\n```\n\na\n~~~\n\nb", ["~~~\n```\n\na\n~~~\n\n"]),
        ("```\n```python\n\nb", []),
        ("- a\n\n  more\n\n", []),
        ("- a\n\n  more\n\nb", ["- a\n\n  more\n\n"]),
        ("a\r\n\r\nb", ["a\r\n\r\n"]),
    ],
)
def test_a_block_is_complete_when_another_begins(text: str, complete: list[str]) -> None:
    assert split_blocks(text) == (complete, text[len("".join(complete)) :])


LINES = st.lists(st.sampled_from(["a\n", "\n", "```\n", "````py\n", "~~~\n", "  b\n", "- c\n", "d"]), max_size=12)


@given(LINES, st.integers(0, 60))
def test_what_is_complete_stays_so_however_the_text_comes(lines: list[str], place: int) -> None:
    text = "".join(lines)
    early, rest = split_blocks(text[:place])
    late, growing = split_blocks(rest + text[place:])
    assert split_blocks(text) == ([*early, *late], growing)
