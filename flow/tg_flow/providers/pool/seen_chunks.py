"""Chunks of one server's answer -> when it began, and what it counts, whether a task waits for each chunk or not."""

from collections.abc import Callable

from tg_base.instances import InstanceUsage, Placement
from tg_base.llm import LlmChunk, PassOn
from tg_base.pool_status import RequestRecord


class SeenChunks:
    """Of one attempt.

    Args:
        placement: is told of the first token.
        record: the same.
        now: the clock of both, in seconds.

    Attributes:
        on_chunk: gets the chunks that come while the server is waited for; None = who waits does.
    """

    __slots__ = ("_cached", "_now", "_placement", "_prompt", "_record", "_tokens", "on_chunk")

    def __init__(self, placement: Placement, record: RequestRecord, now: Callable[[], float]) -> None:
        self.on_chunk: PassOn | None = None
        self._placement = placement
        self._record = record
        self._now = now
        self._prompt = self._cached = self._tokens = 0

    def see(self, chunk: LlmChunk) -> None:
        """One more chunk has come."""
        if self._placement.first_at is None and chunk.has_content:
            now = self._now()
            self._placement.first_token(now)
            self._record.first_token(now)
        self._prompt += chunk.in_token or 0
        self._tokens += chunk.out_token or 0
        self._cached += chunk.cached_token or 0

    def pass_on(self, chunk: LlmChunk) -> bool:
        """A `PassOn`, while the server is waited for."""
        self.see(chunk)
        return self.on_chunk is not None and self.on_chunk(chunk)

    @property
    def usage(self) -> InstanceUsage | None:
        """What the chunks count together."""
        return InstanceUsage.reported(self._prompt or None, self._cached or None, self._tokens or None)
