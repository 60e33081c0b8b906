"""Provider's running totals -> our deltas: usage that is exact however often a provider repeats it."""

from tg_base.llm_chunk import LlmChunk


class RunningCounts:
    """What was told of one answer's usage so far."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}

    def chunk(
        self,
        in_token: int | None = None,
        out_token: int | None = None,
        cached_token: int | None = None,
        reasoning_token: int | None = None,
    ) -> LlmChunk:
        """A chunk with what these totals add to those told before; None = not told this time."""
        return LlmChunk(
            in_token=self._added("in", in_token),
            out_token=self._added("out", out_token),
            cached_token=self._added("cached", cached_token),
            reasoning_token=self._added("reasoning", reasoning_token),
        )

    def _added(self, name: str, total: int | None) -> int | None:
        if total is None:
            return None
        told = self._told.get(name, 0)
        self._told[name] = max(told, total)
        return self._told[name] - told
