"""Provider's running totals -> deltas: the usage stays exact however often a provider repeats its totals."""

from tg_base.llm.core import LlmChunk

Counts = tuple[int | None, int | None, int | None, int | None]
"""Tokens: input, output, cached part of the input, reasoning part of the output; None = not reported."""


class UsageDeltas:
    """The totals of one answer's usage so far."""

    def __init__(self) -> None:
        self._in = self._out = self._cached = self._reasoning = 0

    def add_totals(
        self, in_token: int | None, out_token: int | None, cached_token: int | None, reasoning_token: int | None
    ) -> Counts:
        """The increase of each total since the last call; a total that decreases counts as 0."""
        more_in, more_out = _more(self._in, in_token), _more(self._out, out_token)
        more_cached, more_reasoning = _more(self._cached, cached_token), _more(self._reasoning, reasoning_token)
        self._in += more_in or 0
        self._out += more_out or 0
        self._cached += more_cached or 0
        self._reasoning += more_reasoning or 0
        return more_in, more_out, more_cached, more_reasoning

    def chunk(
        self,
        in_token: int | None = None,
        out_token: int | None = None,
        cached_token: int | None = None,
        reasoning_token: int | None = None,
    ) -> LlmChunk:
        """A chunk with the deltas of `add_totals` only."""
        counts = self.add_totals(in_token, out_token, cached_token, reasoning_token)
        return LlmChunk(in_token=counts[0], out_token=counts[1], cached_token=counts[2], reasoning_token=counts[3])


def _more(told: int, total: int | None) -> int | None:
    return None if total is None else max(total - told, 0)
