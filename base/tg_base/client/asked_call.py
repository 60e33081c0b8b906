"""Answer of a model -> its asker -> topic of usage: the record of a call that its processor does not write."""

import asyncio
from time import time
from typing import Final

import msgspec

from tg_base.telemetry import Span
from tg_schema import TextCompletionResponse, Usage, decode
from tg_schema.errors import BadRequest
from tg_schema.prompt_size import estimate_usage, measure_text
from tg_schema.usage_record import Outcome, Payer, UsageRecord

_NOTHING: Final = TextCompletionResponse()
MAX_KEPT_BYTES: Final = 4096
"""Of a last record that is kept until its call is forgotten: vectors have a megabyte."""


class AskedCall(msgspec.Struct):
    """What an asker has seen of a request of a model: enough to write its record where its processor cannot.

    A plain peer writes none, and a process that is killed takes the newest ones with it.

    Attributes:
        span: the request's.
        operation: as in the request.
        prompt_bytes: of the prompt's text.
        began_at: when it was asked, by the loop's clock, as `came_at`.
        came_at: when the last record came, or else when it was asked.
        flow: the id of the flow that is asked now.
        model: the model's name here; "" = not known.
        attempt: the requestor's.
        processor: which process answers it; None = none so far, or a plain peer.
        begun: whether its processor has said so, by a record or without.
        pieces: records that came.
        received: bytes of their JSON.
        last: the JSON of the last one.
        complete: whether it was the last of the answer.
        error: the type of the error that has ended it, unless it is complete; None = its reader left.
        record: its record, in place of a large last one.
    """

    span: Span
    operation: str
    prompt_bytes: int
    began_at: float
    came_at: float
    flow: str = ""
    model: str = ""
    attempt: int = 1
    processor: str | None = None
    begun: bool = False
    pieces: int = 0
    received: int = 0
    last: bytes = b""
    complete: bool = False
    error: str | None = None
    record: UsageRecord | None = None

    def drop_answer(self) -> None:
        """Keep its record alone: it is over."""
        self.record, self.last = self.make_record(), b""

    def make_record(self) -> UsageRecord:
        """Its record."""
        if self.record is not None:
            return self.record
        try:
            last = decode(TextCompletionResponse, self.last)
        except BadRequest:
            last = _NOTHING
        kind = last.error.type if last.error is not None else None if self.complete else self.error
        outcome: Outcome = "failed" if kind else "complete" if self.complete else "left"
        usage = self._usage(last, complete=outcome == "complete")
        wall = time() - asyncio.get_running_loop().time()
        asked_at = int((wall + self.began_at) * 1000)
        return UsageRecord(
            self.span.stream or "",
            self.attempt,
            request=self.span.request,
            payer=Payer.of(self.span.payer),
            door=self.span.door or "",
            flow=self.flow,
            operation=self.operation,
            model=self.model,
            upstream_model=last.model or "",
            usage=usage,
            estimated=usage != last.usage,
            queued_at=asked_at,
            began_at=asked_at,
            ended_at=int((wall + self.came_at) * 1000),
            outcome=outcome,
            error=kind,
            unique=True,
        )

    def _usage(self, last: TextCompletionResponse, *, complete: bool) -> Usage:
        pieces = self.pieces - (last.error is not None)
        if last.error is not None and not pieces:
            # Perhaps no provider was asked.
            return last.usage
        # Records of one stream differ in their texts alone.
        letters = measure_text((last.response, last.reasoning, last.tool_calls))
        letters = self.received - self.pieces * (len(self.last) - letters)
        answers = self.operation == "completion"
        return estimate_usage(last.usage, self.prompt_bytes, pieces, letters, complete=complete, answers=answers)
