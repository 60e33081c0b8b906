"""Chunks of one server's answer -> scheduler and board: when the answer begins, its usage, and how it ends."""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from tg_base.llm import LlmChunk, PassOn
from tg_picker.core import InstanceUsage, Placement
from tg_picker.status import ANSWERED, LEFT, RequestRecord
from tg_schema import TgError, Usage
from tg_schema.completion import UNCOUNTED, counts_of
from tg_schema.errors import IncompleteStream


class Attempt(Struct, eq=False):
    """One attempt at a request, at one server. It sees each chunk, even if the chunk wakes no task.

    Attributes:
        placement: the placement of the request on the server.
        record: the record of the attempt.
        now: the clock of both, in seconds.
        on_chunk: takes chunks that arrive while the server is awaited; None = the awaiting task takes them.
        usage: what the server has counted so far.
        is_whole: whether the answer ended properly.
        outcome: how the attempt ends, see `RequestRecord.end`; until it is set, the client counts as having left.
    """

    placement: Placement
    record: RequestRecord
    now: Callable[[], float]
    on_chunk: PassOn | None = None
    usage: Usage = Usage()
    is_whole: bool = False
    outcome: str = LEFT

    def see(self, chunk: LlmChunk) -> None:
        """Note that a chunk has arrived."""
        if self.placement.first_at is None and (chunk.text or chunk.has_content):
            now = self.now()
            self.placement.first_token(now)
            self.record.first_token(now)
        if chunk.finish_reason is not None:
            self.is_whole = True
        if counts_of(chunk) != UNCOUNTED:
            self.usage += chunk.usage

    def pass_on(self, chunk: LlmChunk) -> bool:
        """A `PassOn` for chunks that arrive while the server is awaited."""
        self.see(chunk)
        return self.on_chunk is not None and self.on_chunk(chunk)

    def complete(self) -> None:
        """Note that nothing more will arrive. Without a terminal marker that is a failure, which the client gets."""
        if self.is_whole:
            self.outcome = ANSWERED
        else:
            self.record.fail(IncompleteStream.type, IncompleteStream.status, self.now())

    def fail(self, error: TgError) -> float:
        """Note why the attempt failed. Returns the time."""
        now = self.now()
        self.record.fail(error.type, error.status, now)
        return now

    def end(self) -> None:
        """Stop counting the request at the server."""
        now = self.now()
        told = self.usage
        usage = InstanceUsage.reported(told.in_token or None, told.cached_token or None, told.out_token or None)
        self.placement.finish(usage, now)
        self.record.end(usage, now, self.outcome)


def say_model(begun: list[LlmChunk], model: str) -> list[LlmChunk]:
    """Add the answering model's name to the first chunk of an answer if the server omits it."""
    begun[0] = begun[0] if begun[0].model else msgspec.structs.replace(begun[0], model=model)
    return begun
