"""Logits of a prompt -> the log-probabilities of the tokens that are in it."""

from tg_llama.core import Alternatives, Context, Model, token_data
from tg_llama.engine.generation import Generation
from tg_llama.sampling import logprobs
from tg_schema import Token


class Scores:
    """Belongs to the engine's thread.

    Attributes:
        first: the position of the first token whose logits are wanted: they are those of the next one.
    """

    def __init__(self, model: Model, generation: Generation) -> None:
        job = generation.job
        self._model = model
        self._generation = generation
        self._ids = (*job.prompt, *(job.scored or ()))
        self._prompt: list[Token] = []
        self._of_prompt = len(job.prompt) if job.prompt_logprobs is not None else 0
        if self._of_prompt:
            # Nothing comes before the first token, so there are no logits for it.
            self._prompt.append(token_data(model, job.prompt[0]))
        self.first = 0 if self._of_prompt else len(job.prompt) - 1
        self._next = self.first + 1
        self._report_prompt()

    @property
    def done(self) -> bool:
        """Whether each token has its log-probability."""
        return self._next == len(self._ids)

    def take(self, context: Context, row: int) -> None:
        """Score the next token by the logits of batch row `row`, and pass it to the reader."""
        job, token = self._generation.job, self._ids[self._next]
        prompts = self._next < self._of_prompt
        alternatives = job.prompt_logprobs if prompts else job.logprobs
        scored = token_data(self._model, token, *self._logprobs(context, row, token, alternatives or 0))
        self._next += 1
        if prompts:
            self._prompt.append(scored)
            self._report_prompt()
        else:
            self._generation.put(scored)

    def _logprobs(self, context: Context, row: int, token: int, count: int) -> tuple[float, Alternatives]:
        return logprobs(context.logits(row), token, count, self._generation.job.settings.logit_bias)

    def _report_prompt(self) -> None:
        if self._prompt and self._next >= self._of_prompt:
            self._generation.put(self._prompt)
            self._prompt = []
