"""Provider's running totals -> deltas: the usage stays exact however often a provider repeats its totals."""

from msgspec.structs import astuple

from tg_base.llm.core import LlmChunk
from tg_schema import Usage

_NOTHING = Usage()


class UsageDeltas:
    """The totals of one answer's usage so far."""

    __slots__ = ("_reported",)

    def __init__(self) -> None:
        self._reported = _NOTHING

    def add_totals(self, totals: Usage) -> Usage:
        """The increase of each total since the last call; a total that decreases counts as 0."""
        pairs = zip(astuple(totals), astuple(self._reported), strict=True)
        more = Usage(*[None if total is None else max(total - (before or 0), 0) for total, before in pairs])
        self._reported += more
        return more

    def chunk(self, totals: Usage) -> LlmChunk:
        """A chunk with the deltas of `add_totals` only."""
        return LlmChunk().with_usage(self.add_totals(totals))
