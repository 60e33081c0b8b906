"""Chunks of one server's answer -> scheduler and board: its beginning, its usage and its end."""

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
    """One attempt at one server. It sees each chunk, whether a task waits for it or not.

    Attributes:
        placement: the placement of the request on the server.
        record: the record of the same request.
        now: the clock of both, in seconds.
        on_chunk: gets the chunks that come while the server is waited for; None = who waits does.
        usage: what the server counted until now.
        is_whole: whether the answer has ended as it should.
        outcome: how it ends, see `RequestRecord.end`; it counts as left until something else is set.
    """

    placement: Placement
    record: RequestRecord
    now: Callable[[], float]
    on_chunk: PassOn | None = None
    usage: Usage = Usage()
    is_whole: bool = False
    outcome: str = LEFT

    def see(self, chunk: LlmChunk) -> None:
        """One more chunk has come."""
        if self.placement.first_at is None and (chunk.text or chunk.has_content):
            now = self.now()
            self.placement.first_token(now)
            self.record.first_token(now)
        if chunk.finish_reason is not None:
            self.is_whole = True
        if counts_of(chunk) != UNCOUNTED:
            self.usage += chunk.usage

    def pass_on(self, chunk: LlmChunk) -> bool:
        """A `PassOn`, while the server is waited for."""
        self.see(chunk)
        return self.on_chunk is not None and self.on_chunk(chunk)

    def complete(self) -> None:
        """Note that nothing more comes. Without a terminal marker that is a failure, which the client gets later."""
        if self.is_whole:
            self.outcome = ANSWERED
        else:
            self.record.fail(IncompleteStream.type, IncompleteStream.status, self.now())

    def fail(self, error: TgError) -> float:
        """Note why it ended, and return when."""
        now = self.now()
        self.record.fail(error.type, error.status, now)
        return now

    def end(self) -> None:
        """Count the request at the server no longer."""
        now = self.now()
        told = self.usage
        usage = InstanceUsage.reported(told.in_token or None, told.cached_token or None, told.out_token or None)
        self.placement.finish(usage, now)
        self.record.end(usage, now, self.outcome)


def say_model(begun: list[LlmChunk], model: str) -> list[LlmChunk]:
    """The first chunk of an answer, with the answering model's name even if the server omits it."""
    begun[0] = begun[0] if begun[0].model else msgspec.structs.replace(begun[0], model=model)
    return begun
