"""LlmChunks of one request -> the records that need more than one of them: ends, whole answers, usage."""

from collections.abc import Callable, Sequence

import msgspec

from tg_base.llm.answer_form import AnswerForm
from tg_base.llm.core import LlmChunk, join_chunks
from tg_base.llm.generation_plan import GenerationPlan
from tg_base.llm.ranking import Ranking
from tg_base.llm.single_call import SingleCall
from tg_base.llm.totals import Totals
from tg_schema import TextCompletionRequest, TextCompletionResponse
from tg_schema.answer_collector import AnswerCollector

Edit = Callable[[LlmChunk], LlmChunk]


class AnswerBuilder:
    """Of one request.

    Attributes:
        totals: what all chunks add up to.
        edit: changes each chunk, before all else; None = nothing to change.
        keep: takes each chunk that is needed later; None = none is.
        tells_ends: whether the end of each of several answers is told as soon as it comes.
    """

    def __init__(self, request: TextCompletionRequest, plan: GenerationPlan, form: AnswerForm | None) -> None:
        self.totals = Totals(request.model)
        self.tells_ends = bool(request.streaming) and form is None
        self._request = request
        self._several = plan.generated > 1
        self._form = form
        keeps = form is not None or not request.streaming
        self._kept = AnswerCollector(join_chunks) if keeps else None
        sampling = request.sampling
        asks_tokens = sampling is not None and sampling.logprobs is not None
        self._ranking = Ranking(tokens=asks_tokens) if plan.ranked else None
        edits = [] if self._ranking is None else [self._ranking.edit]
        edits += [SingleCall().edit] if plan.single_call else []
        self.edit = _in_turn(edits)
        self.keep = None if self._kept is None else self._kept.add

    def end(self, index: int) -> TextCompletionResponse:
        """The record of the end of one of several answers, whose text is told."""
        return self.totals.end_record(LlmChunk(index=index), ends=True, final=False)

    async def last_records(self) -> Sequence[TextCompletionResponse]:
        """What is left to tell after the last chunk: whole answers if they are asked for, ends, and the usage.

        Raises:
            SchemaViolation: an answer is not in its form.
        """
        answers = self._answers()
        if self._form is not None:
            for index, answer in answers.items():
                answers[index] = await self._in_form(self._form, index, answer)
        if self._request.streaming:
            return self._last_of_streams(list(answers))
        pieces = [(piece, piece is answer[-1]) for answer in answers.values() for piece in answer]
        return [
            self.totals.end_record(piece, ends=ends, final=number == len(pieces))
            for number, (piece, ends) in enumerate(pieces, 1)
        ]

    def _answers(self) -> dict[int, Sequence[LlmChunk]]:
        """The pieces that were kept of each answer, by its index; of the best ones only, if the plan says so."""
        kept = self._kept.records() if self._kept is not None else ()
        ends = self.totals.endings
        if self._ranking is None:
            return {index: [piece for piece in kept if piece.index == index] for index in sorted(ends)}
        best = self._ranking.best(self._request.answers)
        self.totals.endings = {place: ends[index] for place, index in enumerate(best)}
        return {
            place: [msgspec.structs.replace(piece, index=place) for piece in kept if piece.index == index]
            for place, index in enumerate(best)
        }

    async def _in_form(self, form: AnswerForm, index: int, answer: Sequence[LlmChunk]) -> Sequence[LlmChunk]:
        reason = self.totals.endings[index].finish_reason
        calls = any(piece.tool_calls for piece in answer)
        if reason == "stop" or (reason == "tool_calls" and calls):
            return await form.check_answer(answer, told=bool(self._request.streaming))
        return answer

    def _last_of_streams(self, indexes: Sequence[int]) -> list[TextCompletionResponse]:
        if not self._several:
            return [self.totals.end_record(LlmChunk(), ends=True, final=True)]
        ends = [] if self.tells_ends else [self.end(index) for index in indexes]
        last = LlmChunk(index=self.totals.last if self.tells_ends else indexes[-1])
        return [*ends, self.totals.end_record(last, ends=False, final=True)]


def _in_turn(edits: Sequence[Edit]) -> Edit | None:
    """All edits as one; None if there are none."""
    if not edits:
        return None

    def edit_all(chunk: LlmChunk) -> LlmChunk:
        for edit in edits:
            chunk = edit(chunk)
        return chunk

    return edit_all
