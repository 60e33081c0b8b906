"""What a page shows, beside what came: "..." stands for anything, and ids are like ids."""

import re

ANYTHING = "..."
_ID = re.compile(r'"[0-9a-f]{4,32}/(\d+)"')


def is_shown(shown: str, got: str) -> bool:
    """Whether a page that shows `shown` is right about `got`.

    A line that is only "..." stands for any number of lines, "..." within a line for any text. Blank lines do not
    count.
    """
    pattern = "".join(map(_line, _tidy(shown).splitlines()))
    return re.fullmatch(pattern, "".join(line + "\n" for line in _tidy(got).splitlines())) is not None


def _tidy(text: str) -> str:
    """Without blank lines, which a terminal has where two streams meet."""
    return "\n".join(line for line in _ID.sub(r'"ID/\1"', text).splitlines() if line.strip())


def _line(line: str) -> str:
    if line.strip() == ANYTHING:
        return r"(?:.*\n)*?"
    return ".*?".join(map(re.escape, line.rstrip().split(ANYTHING))) + r" *\n"
