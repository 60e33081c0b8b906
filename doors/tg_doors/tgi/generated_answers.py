"""Records of a whole answer -> the generated answers, the best first."""

from collections.abc import Sequence
from dataclasses import dataclass

from tg_doors.tgi.answer_shapes import BestOfSequence, Details, Ending, Token, name_ending
from tg_doors.tgi.generation_parameters import unsign_seed
from tg_doors.tgi.token_texts import make_alternatives, make_prefill, make_tokens
from tg_schema import TextCompletionResponse, Usage
from tg_schema import Token as RecordToken
from tg_schema.deltas import join_text
from tg_schema.errors import ProtocolError


@dataclass(frozen=True, slots=True)
class GeneratedAnswer:
    """One answer.

    Attributes:
        text: its text, with the stop string that ended it.
        finish_reason: in TGI's words.
        tokens: its tokens; empty = unknown, or not requested.
        prompt_tokens: those of the prompt, if they were asked for.
        seed: the one that was used; None = none, or unknown.
        out_token: tokens that were generated; None = unknown.
    """

    text: str
    finish_reason: Ending
    tokens: tuple[RecordToken, ...] = ()
    prompt_tokens: tuple[RecordToken, ...] = ()
    seed: int | None = None
    out_token: int | None = None

    @property
    def counted_tokens(self) -> int | None:
        """How many tokens were generated, including a reported end token; None = unknown."""
        return max(self.out_token or 0, len(self.tokens)) if self.tokens else self.out_token

    @property
    def generated_tokens(self) -> int:
        """How many tokens were generated; 0 = unknown."""
        return self.counted_tokens or 0

    @property
    def mean_logprob(self) -> float:
        """The mean log-probability of its tokens. An answer without any known one ranks last."""
        known = [token.logprob for token in self.tokens if token.logprob is not None]
        return sum(known) / len(known) if known else float("-inf")

    @property
    def top_tokens(self) -> tuple[tuple[Token, ...], ...]:
        """The alternatives of each token; empty if there are none."""
        tops = tuple(make_alternatives(token) for token in self.tokens)
        return tops if any(tops) else ()


@dataclass(frozen=True, slots=True)
class GeneratedAnswers:
    """All answers to one request.

    Attributes:
        best: the answer with the highest mean log-probability of its tokens.
        others: the rest, in the same order.
        in_token: tokens of the prompt; None = unknown, and where each of several answers has counted its own.
    """

    best: GeneratedAnswer
    others: tuple[GeneratedAnswer, ...]
    in_token: int | None

    @classmethod
    def of(cls, records: Sequence[TextCompletionResponse], stops: Sequence[str], most: int) -> "GeneratedAnswers":
        """Read the records of a whole answer.

        Args:
            records: all of them.
            stops: the stop strings that were asked for.
            most: the answers that were asked for.

        Raises:
            ProtocolError: there are more.
            ContentFilter: as `name_ending`.
        """
        if any(record.index >= most for record in records):
            raise ProtocolError("the model sent more answers than were asked for; ask again, or another model")
        usage = Usage.total(records)
        indexes = sorted({record.index for record in records})
        if len(indexes) == 1:
            return cls(_join(records, stops, usage.out_token), (), usage.in_token)
        # Leave out the count of tokens: the provider's covers all answers together.
        answers = [_join([each for each in records if each.index == index], stops, None) for index in indexes]
        # Python's sort is stable: answers of one mean keep their order, in every run.
        best, *others = sorted(answers, key=lambda answer: -answer.mean_logprob)
        return cls(best, tuple(others), None)

    def describe(self, prefix: str) -> Details:
        """The details of the best answer, with the others; their texts follow `prefix`."""
        best = self.best
        return Details(
            best.finish_reason,
            best.generated_tokens,
            best.seed,
            make_prefill(best.prompt_tokens),
            make_tokens(best.tokens, best.text),
            tuple(_describe_other(other, prefix) for other in self.others) or None,
            best.top_tokens,
        )


def _join(records: Sequence[TextCompletionResponse], stops: Sequence[str], out_token: int | None) -> GeneratedAnswer:
    whole = TextCompletionResponse.summarize(records)
    text = join_text(record.response for record in records) or ""
    return GeneratedAnswer(
        text,
        name_ending(whole.finish_reason, whole.stopped_by, text, stops),
        whole.tokens,
        whole.prompt_tokens,
        unsign_seed(whole.seed),
        out_token,
    )


def _describe_other(answer: GeneratedAnswer, prefix: str) -> BestOfSequence:
    return BestOfSequence(
        prefix + answer.text,
        answer.finish_reason,
        answer.generated_tokens,
        answer.seed,
        make_prefill(answer.prompt_tokens),
        make_tokens(answer.tokens, answer.text),
        answer.top_tokens,
    )
