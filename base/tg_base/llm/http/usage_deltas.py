"""Provider's running totals -> deltas: the usage stays exact however often a provider repeats its totals."""

from msgspec.structs import astuple

from tg_schema import Usage
from tg_schema.completion import COUNTS


class UsageDeltas:
    """The totals of one answer's usage so far."""

    __slots__ = ("_reported",)

    def __init__(self) -> None:
        self._reported = (0,) * len(COUNTS)

    def add_totals(self, totals: Usage) -> Usage:
        """The increase of each total since the last call; a total that decreases counts as 0."""
        pairs = list(zip(astuple(totals), self._reported, strict=True))
        self._reported = tuple([max(total or 0, before) for total, before in pairs])
        return Usage(*[None if total is None else max(total - before, 0) for total, before in pairs])
