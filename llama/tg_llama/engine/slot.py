"""Engine -> slot: one running generation, token by token, and the log-probabilities of given tokens."""

import math

from tg_llama.core import Context, Floats, Model, logprobs, token_data
from tg_llama.engine.generation import Ending, Generation, Job
from tg_schema import TgError, Token

_NONE: frozenset[int] = frozenset()


class Scores:
    """Computes log-probabilities of given tokens. Belongs to the engine's thread.

    Attributes:
        first: the position of the first token whose logits are wanted; these logits score the token after it.
    """

    def __init__(self, model: Model, generation: Generation) -> None:
        job = generation.job
        self._model = model
        self._generation = generation
        self._ids = (*job.prompt, *(job.scored or ()))
        self._prompt: list[Token] = []
        self._of_prompt = len(job.prompt) if job.prompt_logprobs is not None else 0
        if self._of_prompt:
            # Nothing comes before the first token, so no logits score it.
            self._prompt.append(token_data(model, job.prompt[0]))
        self.first = 0 if self._of_prompt else len(job.prompt) - 1
        self._next = self.first + 1
        self._report_prompt()

    @property
    def done(self) -> bool:
        """Whether each token has been scored."""
        return self._next == len(self._ids)

    def take(self, context: Context, row: int) -> None:
        """Score the next token by the logits of batch row `row`, and pass the result to the reader."""
        job, token = self._generation.job, self._ids[self._next]
        prompts = self._next < self._of_prompt
        alternatives = job.prompt_logprobs if prompts else job.logprobs
        scored = _describe(self._model, job, context.logits(row), token, alternatives or 0)
        self._next += 1
        if prompts:
            self._prompt.append(scored)
            self._report_prompt()
        else:
            self._generation.put(scored)

    def _report_prompt(self) -> None:
        if self._prompt and self._next >= self._of_prompt:
            self._generation.put(self._prompt)
            self._prompt = []


class Slot:
    """One running generation. Belongs to the engine's thread.

    Attributes:
        generation: the generation that it runs.
        sequence: the context's sequence that holds its tokens.
        adapter: the adapter to evaluate with; None = the base model.
        tokens: prompt and answer.
        first_output: the position of the first token of the prompt whose logits are wanted.
        evaluated: how many of `tokens` the context has evaluated, which is also the position of the next one.
        answering: whether the whole prompt is evaluated; then the last of `tokens` is evaluated next.
        done: whether the generation has ended.
        follows: the slot whose evaluation of their common prefix this slot waits for; None = it does not wait.
        awaited: the number of tokens of that prefix.
    """

    def __init__(self, model: Model, generation: Generation, context_length: int, sequence: int) -> None:
        """Raises: BadRequest, if the job's grammar cannot be read."""
        job = generation.job
        self.generation = generation
        self.sequence = sequence
        self.adapter = generation.adapter
        self.tokens = list(job.evaluated)
        self.evaluated = 0
        self.answering = False
        self.done = False
        self.follows: Slot | None = None
        self.awaited = 0
        self._model = model
        self._job = job
        self._bars = job.ignore_eos or job.min_tokens > 0
        self._least = len(job.prompt) + job.min_tokens
        self._longest = min(len(job.prompt) + job.max_tokens, context_length)
        longest = self._longest - len(job.prompt)
        asks = job.prompt_logprobs is not None or job.scored is not None
        self._scores = Scores(model, generation) if asks else None
        self.first_output = self._scores.first if self._scores else len(self.tokens) - 1
        self._sampler = model.make_sampler(job.settings, longest, job.grammar, job.prompt)
        try:
            for token in job.begun:
                self._sampler.accept(token)
        except TgError:
            self.close()
            raise

    @property
    def generates(self) -> bool:
        """Whether an answer follows the prompt."""
        return self._job.scored is None

    def step(self, context: Context, row: int) -> None:
        """Choose the token after batch row `row`, or score the given one, and pass it to the reader.

        Raises:
            ProtocolError: no token fits the job's grammar.
        """
        job, generation = self._job, self.generation
        if self._scores is not None and not self._scores.done:
            self._scores.take(context, row)
            if self._scores.done and job.scored is not None:
                self.finish(Ending("stop"))
            return
        token = self._sample_without(self._barred(), context, row) if self._bars else self._sampler.sample(context, row)
        stops = token in job.stop_ids
        if (stops or token in self._model.end_tokens) and not (stops and job.keep_stop):
            self.finish(Ending("stop", token if stops else None, self._end_data(context, row, token)))
            return
        self.tokens.append(token)
        self.answering = True
        # Without log-probabilities pass a bare number: an object for each token would cost the loop more than its text.
        generation.put(
            token if job.logprobs is None else _describe(self._model, job, context.logits(row), token, job.logprobs)
        )
        if stops:
            self.finish(Ending("stop", token))
        elif len(self.tokens) >= self._longest:
            self.finish(Ending("length"))

    def _barred(self) -> frozenset[int]:
        """The tokens that would end the answer too early."""
        job = self._job
        if len(self.tokens) < self._least:
            return self._model.end_tokens | job.stop_ids
        return self._model.end_tokens - job.stop_ids if job.ignore_eos else _NONE

    def _sample_without(self, barred: frozenset[int], context: Context, row: int) -> int:
        logits = context.logits(row)
        tokens = list(barred)
        hidden = logits[tokens]
        logits[tokens] = -math.inf
        try:
            return self._sampler.sample(context, row)
        finally:
            # Restore the model's own logits: the token data in a response are computed from them.
            logits[tokens] = hidden

    def _end_data(self, context: Context, row: int, token: int) -> Token | None:
        job = self._job
        asked = job.end_token and job.logprobs is not None
        return _describe(self._model, job, context.logits(row), token, job.logprobs or 0) if asked else None

    def finish(self, end: Ending | TgError) -> None:
        """End the answer, normally or with an error."""
        self.generation.put(end)
        self.done = True

    def close(self) -> None:
        """Free the native memory."""
        self._sampler.close()


def _describe(model: Model, job: Job, logits: Floats, token: int, alternatives: int) -> Token:
    """A token with its log-probability, computed from the logits at its position."""
    return token_data(model, token, *logprobs(logits, token, alternatives, job.settings.logit_bias))
