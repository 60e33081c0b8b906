"""A growing Markdown text -> the blocks that are complete, and the one that still grows."""

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def split_blocks(text: str) -> tuple[list[str], str]:
    """The complete blocks, and the rest; all together are the text.

    A block is complete when a blank line and the beginning of another block have followed. What is indented belongs to
    the block before, such as the second paragraph of a list's item.
    """
    complete: list[str] = []
    fence, blank, begins, place = "", False, 0, 0
    for line in text.splitlines(keepends=True):
        if not fence and blank and line[0] not in " \t\r\n":
            complete.append(text[begins:place])
            begins = place
        found = _FENCE.match(line)
        if fence:
            closed = found and found[1].startswith(fence) and not line[found.end() :].strip()
            fence = "" if closed else fence
        elif found:
            fence = found[1]
        blank = not line.strip()
        place += len(line)
    return complete, text[begins:]
