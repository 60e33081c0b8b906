"""Provider's running totals -> deltas: the usage stays exact however often a provider repeats its totals."""

from tg_base.llm.core import LlmChunk

Counts = tuple[int | None, int | None, int | None, int | None, int | None]
"""Tokens: input, output, cached part of the input, reasoning part of the output, and the part of the input that was
written into the cache; None = not reported."""


class UsageDeltas:
    """The totals of one answer's usage so far."""

    __slots__ = ("_reported",)

    def __init__(self) -> None:
        # A list with the first usage, which nearly always is the last event's.
        self._reported: list[int] | None = None

    def add_totals(
        self,
        in_token: int | None,
        out_token: int | None,
        cached_token: int | None,
        reasoning_token: int | None,
        cache_write_token: int | None = None,
    ) -> Counts:
        """The increase of each total since the last call; a total that decreases counts as 0."""
        if self._reported is None:
            self._reported = [0, 0, 0, 0, 0]
        reported = self._reported
        more: list[int | None] = []
        for place, total in enumerate((in_token, out_token, cached_token, reasoning_token, cache_write_token)):
            if total is None:
                more.append(None)
            else:
                more.append(total - reported[place] if total > reported[place] else 0)
                reported[place] = max(reported[place], total)
        return (more[0], more[1], more[2], more[3], more[4])

    def chunk(
        self,
        in_token: int | None = None,
        out_token: int | None = None,
        cached_token: int | None = None,
        reasoning_token: int | None = None,
        cache_write_token: int | None = None,
    ) -> LlmChunk:
        """A chunk with the deltas of `add_totals` only."""
        counts = self.add_totals(in_token, out_token, cached_token, reasoning_token, cache_write_token)
        return LlmChunk(
            in_token=counts[0],
            out_token=counts[1],
            cached_token=counts[2],
            reasoning_token=counts[3],
            cache_write_token=counts[4],
        )
