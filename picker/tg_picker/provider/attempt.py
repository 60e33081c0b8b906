"""Chunks of one server's answer -> scheduler and board: its beginning, its usage and its end."""

from collections.abc import Callable

import msgspec

from tg_base.llm import LlmChunk, PassOn
from tg_picker.core import InstanceUsage, Placement
from tg_picker.status import ANSWERED, LEFT, RequestRecord
from tg_schema import TgError
from tg_schema.errors import IncompleteStream


class Attempt:
    """One attempt at one server. It sees each chunk, whether a task waits for it or not.

    Args:
        placement: the placement of the request on the server.
        record: the record of the same request.
        now: the clock of both, in seconds.

    Attributes:
        on_chunk: gets the chunks that come while the server is waited for; None = who waits does.
        outcome: how it ends, see `RequestRecord.end`; it counts as left until something else is set.
    """

    __slots__ = (
        "_cached", "_is_whole", "_now", "_placement", "_prompt", "_record", "_tokens", "on_chunk", "outcome",
    )  # fmt: skip

    def __init__(self, placement: Placement, record: RequestRecord, now: Callable[[], float]) -> None:
        self.on_chunk: PassOn | None = None
        self._placement = placement
        self._record = record
        self._now = now
        self._prompt = self._cached = self._tokens = 0
        self._is_whole = False
        self.outcome = LEFT

    def see(self, chunk: LlmChunk) -> None:
        """One more chunk has come."""
        if self._placement.first_at is None and (chunk.text or chunk.has_content):
            now = self._now()
            self._placement.first_token(now)
            self._record.first_token(now)
        if chunk.finish_reason is not None:
            self._is_whole = True
        # Nearly all chunks count nothing.
        if chunk.in_token is not None:
            self._prompt += chunk.in_token
        if chunk.out_token is not None:
            self._tokens += chunk.out_token
        if chunk.cached_token is not None:
            self._cached += chunk.cached_token

    def pass_on(self, chunk: LlmChunk) -> bool:
        """A `PassOn`, while the server is waited for."""
        self.see(chunk)
        return self.on_chunk is not None and self.on_chunk(chunk)

    def complete(self) -> None:
        """Note that nothing more comes. Without a terminal marker that is a failure, which the client gets later."""
        if self._is_whole:
            self.outcome = ANSWERED
        else:
            self._record.fail(IncompleteStream.type, IncompleteStream.status, self._now())

    def fail(self, error: TgError) -> float:
        """Note why it ended, and return when."""
        now = self._now()
        self._record.fail(error.type, error.status, now)
        return now

    def end(self) -> None:
        """Count the request at the server no longer."""
        now = self._now()
        usage = InstanceUsage.reported(self._prompt or None, self._cached or None, self._tokens or None)
        self._placement.finish(usage, now)
        self._record.end(usage, now, self.outcome)


def say_model(begun: list[LlmChunk], model: str) -> list[LlmChunk]:
    """The first chunk of an answer, with the answering model's name even if the server omits it."""
    begun[0] = begun[0] if begun[0].model else msgspec.structs.replace(begun[0], model=model)
    return begun
