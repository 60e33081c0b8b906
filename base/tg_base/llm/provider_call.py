"""One call of a provider -> its usage record and its span: what it returned, how it ended, and who is charged."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from time import time
from typing import Final

import msgspec
import structlog

from tg_base.llm.core import CallMeter
from tg_base.runtime import MAX_QUICK_BYTES
from tg_base.server import UsageAccount
from tg_base.telemetry import Attribute, Spanning, count_call, find_token_counter, span_names
from tg_schema import ImagePart, TextCompletionRequest, TgError, Usage
from tg_schema.errors import Internal
from tg_schema.prompt_size import estimate_usage, measure_text
from tg_schema.usage_record import Outcome, Payer, UsageRecord

log = structlog.get_logger()

_NO_SPAN: Final = nullcontext()
PAID_OPERATIONS: Final = frozenset({"embed", "score"})
"""Operations that providers bill, besides answers."""


class ProviderCall(CallMeter, kw_only=True):
    """One call of a provider. Its reader notes what the call brings, and calls `end` once.

    Attributes:
        account: the account of the request that the call is made for; None = the call is not recorded.
        operation: the requested operation.
        model: the model's name here.
        upstream_model: its name at the provider.
        provider: the provider's name in the configuration.
        prompt_bytes: bytes of the prompt's text; 0 = not known.
        began: when it began, in seconds since the epoch.
        spanning: entered while it is read, so that the provider gets the ids of the call's span.
        about: the attributes of that span, which `end` completes; None = the span is not recorded.
    """

    account: UsageAccount | None = None
    operation: str = "completion"
    model: str = ""
    upstream_model: str = ""
    provider: str = ""
    prompt_bytes: int = 0
    began: float = 0.0
    spanning: AbstractContextManager[None] = _NO_SPAN
    about: dict[str, Attribute] | None = None

    def record_span(self, about: dict[str, Attribute]) -> None:
        """Record its span as well, with these attributes."""
        self.about, self.began = about, self.began or time()
        self.spanning = Spanning(f"{span_names.CHAT} {about[span_names.REQUEST_MODEL]}", "client", about)

    def end(self, error: BaseException | None) -> None:
        """Record and count the call, and log a refusal. `error` has ended the call; None = it is complete.

        A call does not count if its reader left before it was sent.
        """
        if self.operation not in PAID_OPERATIONS:
            # Count a stream that was cancelled or has failed, too: the provider bills the tokens up to there.
            usage = Usage(*self.counts)
            find_token_counter(self.model, "in").inc(usage.in_token or 0)
            find_token_counter(self.model, "out").inc(usage.out_token or 0)
        left = self.unsent and not isinstance(error, TgError)
        if self.account is not None and not left:
            record = self._make_record(self.account, error)
            count_call(record)
            if record.outcome == "failed" and not self.pieces:
                self.account.failed.append(record)
            else:
                self.account.record(record)
        if isinstance(error, TgError) and error.details:
            # Log the id that the provider's support team needs, but never the body, which may contain prompts or keys.
            log.warning("provider.refused", model=self.model, provider=self.provider, **error.details)
        if self.about is not None:
            self.about |= self._describe_end()

    def _describe_end(self) -> dict[str, Attribute]:
        usage = Usage(*self.counts)
        return {
            span_names.TIME_TO_FIRST_CHUNK: None if self.first is None else self.first - self.began,
            span_names.FINISH_REASONS: None if self.finish_reason is None else (self.finish_reason,),
            span_names.RESPONSE_MODEL: self.answered_by,
            span_names.INPUT_TOKENS: usage.in_token,
            span_names.OUTPUT_TOKENS: usage.out_token,
            span_names.CACHED_TOKENS: usage.cached_token,
            span_names.REASONING_TOKENS: usage.reasoning_token,
        }

    def _make_record(self, account: UsageAccount, error: BaseException | None) -> UsageRecord:
        outcome, kind = _judge(error)
        details = error.details if isinstance(error, TgError) else {}
        status, upstream = details.get("status"), details.get("upstream_request")
        usage, headers = self._usage(outcome), account.headers
        span = headers.span
        return UsageRecord(
            headers.key.stream,
            headers.key.attempt,
            request="" if span is None else span.request,
            payer=Payer.of(None if span is None else span.payer),
            door="" if span is None else span.door or "",
            flow=account.flow,
            operation=self.operation,
            model=self.model,
            provider=self.provider,
            upstream_model=self.upstream_model,
            server=self.server,
            usage=usage,
            estimated=[*msgspec.structs.astuple(usage)] != self.counts,
            queued_at=account.queued_at,
            began_at=int(self.began * 1000),
            first_at=None if self.first is None else int(self.first * 1000),
            ended_at=int(time() * 1000),
            outcome=outcome,
            error=kind,
            upstream_status=status if isinstance(status, int) else None,
            upstream_request=upstream if isinstance(upstream, str) else None,
            unique=headers.reply is not None,
        )

    def _usage(self, outcome: Outcome) -> Usage:
        """The usage, estimated where the provider has not counted, unless the call failed before it sent anything."""
        if outcome == "failed" and not self.pieces:
            return Usage(*self.counts)
        answers = self.operation not in PAID_OPERATIONS
        told, complete = Usage(*self.counts), outcome == "complete"
        return estimate_usage(told, self.prompt_bytes, self.pieces, self.letters, complete=complete, answers=answers)


def describe_request(request: TextCompletionRequest) -> dict[str, Attribute]:
    """The attributes that a span has of a request for an answer: never its content."""
    sampling = request.sampling
    return {
        span_names.OPERATION: span_names.CHAT,
        span_names.STREAM: request.streaming,
        span_names.MAX_TOKENS: None if sampling is None else sampling.max_tokens,
        span_names.TEMPERATURE: None if sampling is None else sampling.temperature,
    }


def measure_lists(request: TextCompletionRequest, account: UsageAccount) -> int:
    """Bytes of the text of a request's prompt besides `prompt` and `system`."""
    # Measuring thousands of turns takes milliseconds, so a large request without images is measured by its JSON.
    parts = (part for turn in request.messages if not isinstance(turn.content, str) for part in turn.content)
    if account.size > MAX_QUICK_BYTES and not any(isinstance(part, ImagePart) for part in parts):
        return account.size
    lists = (request.messages, request.tools, request.prompt_ids, request.texts, request.id_lists, request.scored)
    return measure_text(lists)


def _judge(error: BaseException | None) -> tuple[Outcome, str | None]:
    match error:
        case None:
            return "complete", None
        case TgError():
            return "failed", error.type
        case asyncio.CancelledError() | GeneratorExit():
            return "left", None
        case _:
            return "failed", Internal.type
