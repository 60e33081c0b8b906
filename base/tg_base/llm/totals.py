"""LlmChunks -> their numbers, checked; and what the last record of each answer and of the stream says: usage, ends."""

from dataclasses import dataclass, field

import msgspec
import structlog

from tg_base.llm.core import LlmChunk
from tg_base.telemetry import find_token_counter
from tg_schema import TextCompletionResponse
from tg_schema.conversation import MAX_CALL_INDEX
from tg_schema.deltas import MAX_COUNT
from tg_schema.errors import ProtocolError

log = structlog.get_logger()

_COUNTS = ("in_token", "out_token", "cached_token", "reasoning_token", "cache_write_token")


def check_numbers(chunk: LlmChunk) -> LlmChunk:
    """The chunk with counts from 0 to `MAX_COUNT`; any other count becomes None (unknown) and is logged.

    A wrong count does not fail an answer: its text is correct, and has been paid for.

    Raises:
        ProtocolError: a tool call's index is below 0 or above `MAX_CALL_INDEX`, or a token's id exceeds 64 bits.
    """
    # Nearly all chunks are text, some with a token, and few have any other number: what they lack costs a comparison.
    if chunk.tool_calls and any(not 0 <= call.index <= MAX_CALL_INDEX for call in chunk.tool_calls):
        raise ProtocolError(f"the provider numbers a tool call outside of 0 to {MAX_CALL_INDEX}")
    for token in chunk.tokens:
        if not -1 <= token.id < 2**63 or (token.top and any(not -1 <= top[0] < 2**63 for top in token.top)):
            raise ProtocolError("the provider sent a token whose id is no 64-bit number")
    if (
        chunk.in_token is None
        and chunk.out_token is None
        and chunk.cached_token is None
        and chunk.reasoning_token is None
        and chunk.cache_write_token is None
    ):
        return chunk
    wrong = [name for name in _COUNTS if not 0 <= (getattr(chunk, name) or 0) <= MAX_COUNT]
    if not wrong:
        return chunk
    log.warning("provider.wrong_count", counts=wrong)
    return msgspec.structs.replace(chunk, **dict.fromkeys(wrong))


@dataclass(slots=True)
class Ending:
    """How one answer ended."""

    finish_reason: str | None = None
    stopped_by: str | int | None = None
    seed: int | None = None


@dataclass(slots=True)
class Totals:
    """The totals of a stream's chunks, except what the chunks say.

    Attributes:
        asked: the model's name in the request.
        endings: how each answer ended, by its `index`.
        last: the answer that ended last.
    """

    asked: str | None
    in_token: int | None = None
    out_token: int | None = None
    cached_token: int | None = None
    cache_write_token: int | None = None
    reasoning_token: int | None = None
    model: str | None = None
    endings: dict[int, Ending] = field(default_factory=dict)
    last: int = 0

    def add(self, chunk: LlmChunk) -> None:
        """Add a chunk."""
        # None is unknown and 0 is counted: a count that nobody has told stays unknown.
        if chunk.in_token is not None:
            self.in_token = (self.in_token or 0) + chunk.in_token
        if chunk.out_token is not None:
            self.out_token = (self.out_token or 0) + chunk.out_token
        if chunk.cached_token is not None:
            self.cached_token = (self.cached_token or 0) + chunk.cached_token
        if chunk.reasoning_token is not None:
            self.reasoning_token = (self.reasoning_token or 0) + chunk.reasoning_token
        if chunk.cache_write_token is not None:
            self.cache_write_token = (self.cache_write_token or 0) + chunk.cache_write_token
        self.model = chunk.model or self.model
        if chunk.finish_reason is not None or chunk.stopped_by is not None or chunk.seed is not None:
            self._end(chunk)

    def _end(self, chunk: LlmChunk) -> None:
        ending = self.endings.setdefault(chunk.index, Ending())
        ending.stopped_by = ending.stopped_by if chunk.stopped_by is None else chunk.stopped_by
        ending.seed = ending.seed if chunk.seed is None else chunk.seed
        if chunk.finish_reason is not None:
            ending.finish_reason = ending.finish_reason or chunk.finish_reason
            self.last = chunk.index

    def tell(self, chunk: LlmChunk) -> TextCompletionResponse:
        """The record of what a chunk says, without any count."""
        return TextCompletionResponse(
            response=chunk.text,
            index=chunk.index,
            reasoning=chunk.reasoning,
            tokens=chunk.tokens,
            tool_calls=chunk.tool_calls,
            model=chunk.model or self.asked,
            signature=chunk.signature,
            prompt_tokens=chunk.prompt_tokens,
        )

    def end_record(self, piece: LlmChunk, *, ends: bool, final: bool) -> TextCompletionResponse:
        """A record of `piece`.

        Args:
            piece: what the record says.
            ends: whether its answer ends with it; then it says how.
            final: whether the stream ends with it; then it has the usage of all answers.
        """
        ending = self.endings.get(piece.index, Ending()) if ends else Ending()
        return msgspec.structs.replace(
            self.tell(piece),
            cached_token=self.cached_token if final else None,
            cache_write_token=self.cache_write_token if final else None,
            reasoning_token=self.reasoning_token if final else None,
            in_token=self.in_token if final else None,
            out_token=self.out_token if final else None,
            stopped_by=ending.stopped_by,
            seed=ending.seed,
            model=self.model or self.asked,
            finish_reason=ending.finish_reason,
            end_of_stream=final,
        )

    def report(self, model: str) -> None:
        """Add the known usage to the metrics, including that of cancelled streams."""
        find_token_counter(model, "in").inc(self.in_token or 0)
        find_token_counter(model, "out").inc(self.out_token or 0)
