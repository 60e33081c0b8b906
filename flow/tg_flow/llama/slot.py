"""Engine -> slot: one running generation, token by token."""

from tg_flow.llama.context import Context
from tg_flow.llama.generation import Generation
from tg_flow.llama.grammar_sampler import GrammarSampler
from tg_flow.llama.logprobs import logprobs
from tg_flow.llama.model import Model
from tg_flow.llama.sampler import Sampler
from tg_schema import TgError, Token


class Slot:
    """Belongs to the engine's thread.

    Attributes:
        generation: the generation that it runs.
        tokens: prompt and answer.
        evaluated: how many of them the context has evaluated, which is the position of the next one.
        answering: whether the prompt is evaluated; then the last of `tokens` is evaluated next.
        done: whether the generation has its end.
    """

    def __init__(self, model: Model, generation: Generation, context_length: int) -> None:
        """Raises: BadRequest, if the job's grammar cannot be read."""
        job = generation.job
        self.generation = generation
        self.tokens = list(job.prompt)
        self.evaluated = 0
        self.answering = False
        self.done = False
        self._pieces = model.pieces
        self._ends = model.end_tokens
        self._logprobs = job.logprobs
        self._longest = min(len(job.prompt) + job.max_tokens, context_length)
        longest = self._longest - len(job.prompt)
        self._sampler = (
            GrammarSampler(model, job.settings, longest, job.grammar)
            if job.grammar
            else Sampler(model, job.settings, longest)
        )

    def step(self, context: Context, row: int) -> None:
        """Choose the token that follows batch row `row`, and pass it to the reader.

        Raises:
            ProtocolError: no token fits the job's grammar.
        """
        token = self._sampler.sample(context, row)
        if token in self._ends:
            self.finish("stop")
            return
        self.tokens.append(token)
        self.answering = True
        self.generation.put(token if self._logprobs is None else self._data(context, row, token, self._logprobs))
        if len(self.tokens) >= self._longest:
            self.finish("length")

    def _data(self, context: Context, row: int, token: int, alternatives: int) -> Token:
        own, top = logprobs(context.logits(row), token, alternatives)
        return Token(id=token, text=self._pieces[token].decode("utf-8", "replace"), logprob=own, top=top)

    def finish(self, end: str | TgError) -> None:
        """End with a `finish_reason` or an error."""
        self.generation.finish(end)
        self.done = True

    def close(self) -> None:
        """Free the native memory."""
        self._sampler.close()
