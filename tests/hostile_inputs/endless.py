"""A case that never ends, within a library: the bound must find it."""

import re
from collections.abc import Iterator

from tests.hostile_inputs.readers import Case


def make_cases(seed: int, size: int) -> Iterator[Case]:
    """One."""
    yield "never ends", lambda: re.fullmatch("(a|a)*b", "a" * 10 * (size + seed))
