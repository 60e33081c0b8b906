"""Pages of Markdown: wrapping lines anew has joined no items of a list, paragraphs, headings or rows of a table."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page import PAGES, ROOT

ALL_PAGES = [
    *PAGES,
    *(
        ROOT / name
        for name in (
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "MAP.md",
            "RELEASING.md",
            "SECURITY.md",
            "SUPPORT.md",
            "bench/README.md",
        )
    ),
]
MOST_BYTES = {"ARCHITECTURE.md": 16_384, "CHANGELOG.md": 15_000, "bench/README.md": 30_720, "docs": 307_200}
"""A page grows by a line at a time, and nobody reads it any more; a house has its own pages beside it."""
MOST_LINES = 40
"""Of a page that leads from the first answer to a program of the reader's."""
_FENCES = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`[^`\n]+`")
_BLANKS = re.compile(r"\n *(?=\n)")
_NUMBERED = re.compile(r"^(\d+)\. ")
_TITLED = re.compile(r"\s*\*\*[^*]+\.\*\* ")
_PIPE = re.compile(r"(?<!\\)\|")
_INLINE = re.compile(r"[.:;)] (?:[-*]|#{2,6})(?: (?=[\w*\[])|$)", re.MULTILINE)
"""A bullet or a heading behind the end of a sentence."""


def faults(text: str) -> Iterator[str]:
    """What of a page a reader sees otherwise than it was written."""
    prose = _BLANKS.sub("\n", _FENCES.sub("", text))
    yield from _collapsed_items(prose)
    yield from _uneven_tables(prose)
    above = ""
    for line in prose.split("\n"):
        # Markdown joins it to the line above: what begins like a paragraph is the middle of one.
        if _TITLED.match(line) and above and not above.startswith(("#", "|", "<!--")):
            yield f"no blank line is above: {line}"
        above = line
    for found in _INLINE.finditer(_SPAN.sub("``", prose)):
        yield f"in the middle of a line: {found.string[found.start() :].partition(chr(10))[0]}"


def _collapsed_items(prose: str) -> Iterator[str]:
    """Numbered items that do not follow the one before, and those within another one's text."""
    number, item = 0, ""
    for line in [*prose.split("\n"), "#"]:
        begun = _NUMBERED.match(line)
        if begun and not number and begun[1] != "1":
            begun = None  # a line of a paragraph that happens to begin with a number
        if begun or line.startswith("#"):
            if re.search(rf"[.:;)] {number + 1}\. ", item):
                yield f"item {number} of a list has item {number + 1} in it"
            if begun and int(begun[1]) not in {1, number + 1}:
                yield f"item {begun[1]} of a list follows item {number}"
            number, item = int(begun[1]) if begun else 0, ""
        item += (line.strip() + " ") if number or begun else ""


def _uneven_tables(prose: str) -> Iterator[str]:
    columns = 0
    for line in prose.split("\n"):
        pipes = len(_PIPE.findall(line)) if line.lstrip().startswith("|") else 0
        if columns and pipes not in {0, columns}:
            yield f"a row of {pipes - 1} cells in a table of {columns - 1}: {line}"
        columns = pipes and (columns or pipes)


@pytest.mark.parametrize(("name", "most"), MOST_BYTES.items())
def test_a_page_is_not_longer_than_one_reads(name: str, most: int) -> None:
    pages = (ROOT / name).rglob("*.md") if (ROOT / name).is_dir() else [ROOT / name]
    assert sum(page.stat().st_size for page in pages) <= most


def test_a_page_for_the_first_minutes_is_read_in_one() -> None:
    pages = [page for page in PAGES if page.stem.startswith(("with-", "your-own-", "from-"))]
    assert len(pages) == 6
    assert [page.name for page in pages if len(page.read_text("utf-8").splitlines()) > MOST_LINES] == []


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_laid_out_as_it_is_meant(page: Path) -> None:
    assert list(faults(page.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1. One.\n2. Two. 3. **Three.**\n   More.\n", "item 2 of a list has item 3 in it"),
        ("1. One.\n\n   More of it. 2.\n   **Two.**\n", "item 1 of a list has item 2 in it"),
        ("1. One.\n3. Three.\n", "item 3 of a list follows item 1"),
        ("One way. - Another way.\n", "in the middle of a line: . - Another way."),
        ("The end.\n## A heading. ## Another one\n", "in the middle of a line: . ## Another one"),
        ("1. One.\n   **Apart.** More.\n", "no blank line is above:    **Apart.** More."),
        ("| a | b |\n|---|---|\n| 1 | 2 | | 3 | 4 |\n", "a row of 5 cells in a table of 2: | 1 | 2 | | 3 | 4 |"),
    ],
)
def test_what_was_joined_is_found(text: str, fault: str) -> None:
    assert list(faults(text)) == [fault]


def test_what_is_right_is_left_alone() -> None:
    page = (
        "1. One, since 2. is not.\n\n   **Apart.** More.\n2. Two.\n\n# Next\n1. `a. - b`\n| a |\n|---|\n| `x \\| y` |\n"
    )
    assert list(faults(page)) == []
