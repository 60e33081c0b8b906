"""Records of a whole answer -> the generated answers, the best first."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tg_doors.tgi.answer_shapes import (
    BestOfSequence,
    Details,
    Ending,
    Token,
    make_alternatives,
    make_prefill,
    make_token,
)
from tg_doors.tgi.generation_parameters import unsign_seed
from tg_doors.tgi.token_reader import NO_MORE_TOKEN, UNKNOWN_TOKEN, Step, TokenReader
from tg_gateway.dialects.chat import too_many
from tg_schema import TextCompletionResponse, Usage
from tg_schema import Token as RecordToken


@dataclass(frozen=True, slots=True)
class GeneratedAnswer:
    """One answer.

    Attributes:
        text: its text, with the stop string that ended it.
        finish_reason: in TGI's words.
        steps: its tokens, each with its piece of the text; empty = unknown, or not requested.
        prompt_tokens: the prompt's tokens, if the request asked for them.
        seed: the seed that was used; None = none, or unknown.
        out_token: tokens that were generated; None = unknown.
    """

    text: str
    finish_reason: Ending
    steps: tuple[Step, ...]
    prompt_tokens: tuple[RecordToken, ...]
    seed: int | None
    out_token: int | None

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Its tokens in TGI's shape, as a stream has them."""
        return tuple(make_token(*step) for step in self.steps)

    @property
    def counted_tokens(self) -> int | None:
        """How many tokens were generated, including a reported end token; None = unknown."""
        return max(self.out_token or 0, len(self.steps)) if self.steps else self.out_token

    @property
    def generated_tokens(self) -> int:
        """How many tokens were generated; 0 = unknown."""
        return self.counted_tokens or 0

    @property
    def mean_logprob(self) -> float:
        """The mean log-probability of its tokens. An answer without any known one ranks last."""
        known = [step.token.logprob for step in self.steps if step.token.logprob is not None]
        return sum(known) / len(known) if known else float("-inf")

    @property
    def top_tokens(self) -> tuple[tuple[Token, ...], ...]:
        """The alternatives of each token; empty if there are none."""
        tops = tuple(make_alternatives(step.token) for step in self.steps)
        return tops if any(tops) else ()


@dataclass(frozen=True, slots=True)
class GeneratedAnswers:
    """All answers to one request.

    Attributes:
        best: the answer with the highest mean log-probability of its tokens.
        others: the rest, in the same order.
        in_token: tokens of the prompt; None = unknown, or each of several answers has its own count.
    """

    best: GeneratedAnswer
    others: tuple[GeneratedAnswer, ...]
    in_token: int | None

    @classmethod
    def of(cls, records: Sequence[TextCompletionResponse], stops: Sequence[str], most: int) -> "GeneratedAnswers":
        """Read the records of a whole answer.

        Args:
            records: all records of the answers.
            stops: the requested stop strings.
            most: the requested number of answers.

        Raises:
            ProtocolError: there are more.
            ContentFilter: as `name_ending`.
        """
        if any(record.index >= most for record in records):
            raise too_many()
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
            best.tokens,
            tuple(_describe_other(other, prefix) for other in self.others) or None,
            best.top_tokens,
        )


def _join(records: Sequence[TextCompletionResponse], stops: Sequence[str], out_token: int | None) -> GeneratedAnswer:
    reader = TokenReader()
    steps = [step for record in records for step in reader.read(msgspec.structs.replace(record, index=0))]
    told = (
        step for step in (*steps, reader.end) if step.token is not UNKNOWN_TOKEN and step.token is not NO_MORE_TOKEN
    )
    return GeneratedAnswer(
        reader.text,
        reader.name_ending(stops),
        tuple(told),
        tuple(token for record in records for token in record.prompt_tokens),
        unsign_seed(reader.seed),
        out_token,
    )


def _describe_other(answer: GeneratedAnswer, prefix: str) -> BestOfSequence:
    return BestOfSequence(
        prefix + answer.text,
        answer.finish_reason,
        answer.generated_tokens,
        answer.seed,
        make_prefill(answer.prompt_tokens),
        answer.tokens,
        answer.top_tokens,
    )
