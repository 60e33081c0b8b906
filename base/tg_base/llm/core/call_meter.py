"""One call of a provider -> what it has returned so far: pieces, characters and the provider's counts."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final

import msgspec

from tg_base.llm.core.chunk import LlmChunk
from tg_schema import FinishReason
from tg_schema.completion import UNCOUNTED


class CallMeter(msgspec.Struct, kw_only=True):
    """The part of one provider call that has arrived so far.

    Attributes:
        server: the server of a pool that answers.
        unsent: whether the call still waits for credentials or a connection, or got none; None = it has not waited.
        pieces: events with content that the provider has sent, as far as they are known.
        letters: characters of their content.
        counts: the provider's counts, in the order of `Usage`.
        first: when the first content came, in seconds since the epoch.
        finish_reason: the finish reason of the answer that ended last.
        answered_by: the model that the provider names.
    """

    server: str | None = None
    unsent: bool | None = None
    pieces: int = 0
    letters: int = 0
    counts: list[int | None] = msgspec.field(default_factory=[*UNCOUNTED].copy)
    first: float | None = None
    finish_reason: FinishReason | None = None
    answered_by: str | None = None

    def note_content(self, chunk: LlmChunk) -> None:
        """Note the content of a chunk that is more than text."""
        calls = sum(len(call.name or "") + len(call.arguments) for call in chunk.tool_calls)
        self.letters += len(chunk.reasoning or "") + calls


CALL: Final[ContextVar[CallMeter | None]] = ContextVar("provider_call", default=None)
"""The call that the current task reads."""


def name_server(name: str) -> None:
    """Let the record of the current task's call name the server of a pool."""
    call = CALL.get()
    if call is not None:
        call.server = name


def note_unsent() -> CallMeter | None:
    """The current task's call, which now waits to be sent."""
    call = CALL.get()
    if call is not None and call.unsent is None:
        call.unsent = True
    return call


def note_joined(chunks: Sequence[LlmChunk]) -> None:
    """Count these chunks of the current task's call, which it gets as one, piece by piece."""
    call = CALL.get()
    if call is not None:
        call.pieces += max(sum(chunk.has_content for chunk in chunks) - 1, 0)
