"""Characters of a packed mask -> where its numbers end, from one look at each comma and point."""

from typing import Any, Final, NamedTuple

import numpy as np

COMMA, MINUS, POINT, ZERO = b",-.0"
_COMMA_TO_POINT: Final = np.uint8(COMMA ^ POINT)

_Array = np.ndarray[Any, Any]


class NumberEnds(NamedTuple):
    """Places behind each id, behind what each bias has before its point, and behind the bias.

    Attributes:
        marks: commas and points in all of it.
    """

    token: _Array
    whole: _Array
    bias: _Array
    marks: int


def find_ends(chars: _Array, start: int) -> NumberEnds | None:
    """The ends of the complete entries from `start` on; None = there is none, or a point is out of place."""
    is_mark = (chars[start:] | _COMMA_TO_POINT) == POINT
    if 2 * int(np.count_nonzero(is_mark)) > len(is_mark):
        # There is a digit before each, so what has more is not worth a further look.
        return None
    marks = is_mark.nonzero()[0]
    marks += start
    has_points = bool(np.count_nonzero(chars[start:] == POINT))
    rows = _arrange(marks, 3 if has_points else 2)
    # In most masks either all biases have a point or none has.
    if has_points and not _have_points(chars, rows):
        return _find_mixed_ends(marks, chars[marks] == POINT)
    return NumberEnds(rows[:, 0], rows[:, 1], rows[:, -1], rows.size) if rows.size else None


def _have_points(chars: _Array, rows: _Array) -> bool:
    """Whether each of these entries has one point, behind its id."""
    if not rows.size or np.count_nonzero(chars[rows[:, 1]] == POINT) < len(rows):
        return False
    return int(np.count_nonzero(chars[rows[0, 0] : rows[-1, -1] + 1] == POINT)) == len(rows)


def _find_mixed_ends(marks: _Array, is_point: _Array) -> NumberEnds | None:
    """The same where some biases have a point."""
    rows = _arrange(marks[(~is_point).nonzero()[0]], 2)
    points = is_point.nonzero()[0]
    # Commas before each point: two of each entry, and that behind its own id.
    commas = points - np.arange(len(points))
    commas = commas[commas < rows.size]
    entries = commas >> 1
    if not rows.size or not (commas & 1).all() or not (entries[1:] > entries[:-1]).all():
        return None
    whole = rows[:, 1].copy()
    whole[entries] = marks[points[: len(commas)]]
    return NumberEnds(rows[:, 0], whole, rows[:, 1], rows.size + len(commas))


def _arrange(marks: _Array, width: int) -> _Array:
    """A row for each entry; what is left over is of an entry that goes on behind the slice."""
    return marks[: len(marks) // width * width].reshape(-1, width)
