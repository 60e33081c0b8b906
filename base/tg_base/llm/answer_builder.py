"""LlmChunks of one request -> its records: one for each chunk, then the endings, whole answers and usage."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tg_base.llm.answer_form import AnswerForm
from tg_base.llm.continued_answer import end_continued
from tg_base.llm.core import LlmChunk, join_chunks
from tg_base.llm.ranking import Ranking
from tg_base.llm.request_plan import GenerationPlan
from tg_base.runtime import WorkerPool
from tg_schema import TextCompletionRequest, TextCompletionResponse, Usage
from tg_schema.answer_collector import AnswerCollector
from tg_schema.completion import UNCOUNTED, counts_of


class SingleCall:
    """Keeps the call that begins first in each answer. The provider's other calls are dropped, their usage is not."""

    def __init__(self) -> None:
        self._kept: dict[int, int] = {}

    def edit(self, chunk: LlmChunk) -> LlmChunk:
        """The chunk with the pieces of its answer's first call only."""
        if not chunk.tool_calls:
            return chunk
        kept = self._kept.setdefault(chunk.index, chunk.tool_calls[0].index)
        calls = tuple(call for call in chunk.tool_calls if call.index == kept)
        return msgspec.structs.replace(chunk, tool_calls=calls)


Edit = Callable[[LlmChunk], LlmChunk]
Begun = tuple[LlmChunk, AsyncGenerator[LlmChunk, Any]]
"""The first chunk of a stream and the rest."""
PassRecordOn = Callable[[TextCompletionResponse], bool]
"""Takes a record without waiting, as `PassOn` takes a chunk."""
_NO_ENDINGS: Final[Mapping[int, LlmChunk]] = MappingProxyType({})
"""Replaced at the end of an answer: an empty dict for each stream would take 64 bytes."""
_OPEN: Final = LlmChunk()


async def answer_request(
    request: TextCompletionRequest,
    plan: GenerationPlan,
    begin: Callable[[], Awaitable[Begun]],
    checkers: WorkerPool,
) -> AsyncGenerator[TextCompletionResponse, PassRecordOn | None]:
    """All records of an answer.

    A function sent to the generator gets the records that come while the next one is awaited.

    Args:
        request: the request.
        plan: how the provider is called for it.
        begin: sends the plan's requests; returns their chunks, merged if there are several requests.
        checkers: checks what may take long against schemas.

    Raises:
        TgError: as the stream raises; SchemaViolation as for `AnswerBuilder.last_records`.
    """
    # Most requests have none of these fields, and so need no form.
    asks_form = request.response_format or request.schema is not None or request.tools
    answer = AnswerBuilder(request, plan, await AnswerForm.of(request, checkers) if asks_form else None)
    totals, streaming, several, edits = answer.totals, request.streaming, plan.generated > 1, answer.edits
    keep = answer.keep
    plain = streaming and not several and not edits and keep is None
    chunk, rest = await begin()
    # After the first chunk nothing is retried, and a prompt may be long: do not keep it.
    del request, plan, begin
    try:
        # One loop for the first chunk and the rest: a generator around both would cost time with each chunk.
        while True:
            for edit in edits:
                chunk = edit(chunk)
            totals.add(chunk)
            if keep is not None:
                keep(chunk)
            if streaming and (chunk.text or chunk.has_content):
                answer.on_record = yield totals.make_record(chunk)
            if several and chunk.finish_reason is not None and answer.streams_ends:
                answer.on_record = yield answer.end(chunk.index)
            # Do not keep this chunk while waiting for the next.
            del chunk
            try:
                # `anext` with a default would add a step to each wait.
                chunk = await rest.asend(answer.pass_on if plain and answer.on_record is not None else None)
            except StopAsyncIteration:
                break
    finally:
        await rest.aclose()
    for record in await answer.last_records():
        yield record


class AnswerBuilder:
    """Builds the records of one request.

    Attributes:
        totals: the sums over all chunks.
        edits: functions that change each chunk before all else.
        keep: takes each chunk that is needed later; None = no chunk is.
        streams_ends: whether the end of each of several answers is sent as soon as it arrives.
        on_record: gets the records of chunks that arrive while the next one is awaited; None = not called.
    """

    # Not the request, whose prompt may be long.
    __slots__ = (
        "_answers_asked",
        "_collector",
        "_continuation",
        "_form",
        "_ranking",
        "_several",
        "_streaming",
        "edits",
        "keep",
        "on_record",
        "streams_ends",
        "totals",
    )  # fmt: skip

    def __init__(self, request: TextCompletionRequest, plan: GenerationPlan, form: AnswerForm | None) -> None:
        self.totals = Totals(request.adapter or request.model, _NO_ENDINGS)
        self.on_record: PassRecordOn | None = None
        self.streams_ends = bool(request.streaming) and form is None
        self._streaming = bool(request.streaming)
        self._several = plan.generated > 1
        # More may be generated than returned; then the best ones are returned.
        self._answers_asked = request.answers if self._several else 1
        self._form = form
        keeps = form is not None or not request.streaming
        self._collector = AnswerCollector(join_chunks) if keeps else None
        self._continuation = request.continuation
        if self._collector is not None and request.continuation:
            self._collector.add(LlmChunk("".join(request.continuation)))
        sampling = request.sampling
        asks_tokens = sampling is not None and sampling.logprobs is not None
        self._ranking = Ranking(tokens=asks_tokens) if plan.ranked else None
        self.edits: tuple[Edit, ...] = () if self._ranking is None else (self._ranking.edit,)
        self.edits += (SingleCall().edit,) if plan.single_call else ()
        self.keep = None if self._collector is None else self._collector.add

    def pass_on(self, chunk: LlmChunk) -> bool:
        """A `PassOn`, for an answer that is streamed as it is generated."""
        self.totals.add(chunk)
        if not (chunk.text or chunk.has_content):
            return True
        return self.on_record is not None and self.on_record(self.totals.make_record(chunk))

    def end(self, index: int) -> TextCompletionResponse:
        """The record that ends one of several answers, whose text was sent before."""
        return self.totals.end_record(LlmChunk(index=index), ends=True, final=False)

    async def last_records(self) -> Sequence[TextCompletionResponse]:
        """The records after the last chunk: whole answers if they were asked for, the endings, and the usage.

        Raises:
            SchemaViolation: an answer is not in its form.
        """
        answers = self._answers()
        if self._form is not None:
            for index, answer in answers.items():
                answers[index] = await self._in_form(self._form, index, answer)
        if self._streaming:
            return self._last_of_streams(list(answers))
        pieces = [(piece, piece is answer[-1]) for answer in answers.values() for piece in answer]
        return [
            self.totals.end_record(piece, ends=ends, final=number == len(pieces))
            for number, (piece, ends) in enumerate(pieces, 1)
        ]

    def _answers(self) -> dict[int, Sequence[LlmChunk]]:
        """The pieces that were kept of each answer, by its index; of the best ones only, if the plan says so."""
        kept = self._collector.records() if self._collector is not None else ()
        ends = self.totals.endings
        shown = sorted(ends) if self._ranking is None else self._ranking.best(self._answers_asked)
        self.totals.endings = {place: ends[index] for place, index in enumerate(shown)}
        return {
            place: [msgspec.structs.replace(piece, index=place) for piece in kept if piece.index == index]
            for place, index in enumerate(shown)
        }

    async def _in_form(self, form: AnswerForm, index: int, answer: Sequence[LlmChunk]) -> Sequence[LlmChunk]:
        reason = self.totals.endings[index].finish_reason
        calls = any(piece.tool_calls for piece in answer)
        if reason == "stop" or (reason == "tool_calls" and calls):
            return await form.check_answer(answer, streamed=self._streaming)
        return answer

    def _last_of_streams(self, indexes: Sequence[int]) -> list[TextCompletionResponse]:
        if not self._several:
            record = self.totals.end_record(LlmChunk(), ends=True, final=True)
            return [end_continued(record, self._continuation) if self._continuation else record]
        ends = [] if self.streams_ends else [self.end(index) for index in indexes]
        last = LlmChunk(index=self.totals.last if self.streams_ends else indexes[-1])
        return [*ends, self.totals.end_record(last, ends=False, final=True)]


@dataclass(slots=True)
class Totals:
    """The sums over a stream's chunks, without their content.

    Attributes:
        asked: the name of the adapter or model in the request.
        endings: finish reason, stop and seed of each answer, by its `index`.
        counts: the counts, in the order of the fields of `Usage`.
        last: the answer that ended last.
    """

    asked: str | None
    endings: Mapping[int, LlmChunk]
    counts: list[int | None] = field(default_factory=[*UNCOUNTED].copy)
    model: str | None = None
    last: int = 0

    def add(self, chunk: LlmChunk) -> None:
        """Add a chunk."""
        # None is unknown and 0 is counted: a count that was never reported stays unknown.
        if (counts := counts_of(chunk)) != UNCOUNTED:
            # Local models count each chunk: a `Usage` for each would cost more than all else here.
            for place, count in enumerate(counts):
                if count is not None:
                    self.counts[place] = (self.counts[place] or 0) + count
        self.model = chunk.model or self.model
        if chunk.finish_reason is not None or chunk.stopped_by is not None or chunk.seed is not None:
            self._end(chunk)

    def _end(self, chunk: LlmChunk) -> None:
        before = self.endings.get(chunk.index, _OPEN)
        ending = LlmChunk(
            finish_reason=before.finish_reason or chunk.finish_reason,
            stopped_by=before.stopped_by if chunk.stopped_by is None else chunk.stopped_by,
            seed=before.seed if chunk.seed is None else chunk.seed,
        )
        self.endings = {**self.endings, chunk.index: ending}
        if chunk.finish_reason is not None:
            self.last = chunk.index

    def make_record(self, chunk: LlmChunk) -> TextCompletionResponse:
        """The record of a chunk's content, without any count."""
        return TextCompletionResponse(
            response=chunk.text,
            index=chunk.index,
            reasoning=chunk.reasoning,
            tokens=chunk.tokens,
            tool_calls=chunk.tool_calls,
            model=chunk.model or self.model or self.asked,
            signature=chunk.signature,
            prompt_tokens=chunk.prompt_tokens,
        )

    def end_record(self, piece: LlmChunk, *, ends: bool, final: bool) -> TextCompletionResponse:
        """A record of `piece`.

        Args:
            piece: the record's content.
            ends: whether its answer ends with it; then the record says how.
            final: whether the stream ends with it; then the record has the usage of all answers.
        """
        ending = self.endings.get(piece.index, _OPEN) if ends else _OPEN
        record = self.make_record(piece)
        return msgspec.structs.replace(
            record.with_usage(Usage(*self.counts)) if final else record,
            stopped_by=ending.stopped_by,
            seed=ending.seed,
            model=self.model or self.asked,
            finish_reason=ending.finish_reason,
            end_of_stream=final,
        )
