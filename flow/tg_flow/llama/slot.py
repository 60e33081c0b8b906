"""Engine -> Slot: one running generation, token by token."""

from tg_base.llm_chunk import LlmChunk
from tg_flow.llama.answer_text import AnswerText
from tg_flow.llama.context import Context
from tg_flow.llama.generation import Generation
from tg_flow.llama.grammar_sampler import GrammarSampler
from tg_flow.llama.logprobs import logprobs
from tg_flow.llama.model import Model
from tg_flow.llama.sampler import Sampler
from tg_schema import Token
from tg_schema.errors import TgError


class Slot:
    """Belongs to the engine's thread.

    Attributes:
        generation: whose tokens these are.
        prompt: the tokens to begin with.
        evaluated: how many tokens of prompt and answer the context has seen, which is the next one's position.
        next_token: the token to evaluate next; None while the prompt is not yet evaluated.
        done: the generation got its last piece.
    """

    def __init__(self, model: Model, generation: Generation, context_length: int) -> None:
        """Raises: BadRequest, if the job's grammar cannot be read."""
        job = generation.job
        self.generation = generation
        self.prompt = job.prompt
        self.evaluated = 0
        self.next_token: int | None = None
        self.done = False
        self._pieces = model.pieces
        self._ends = model.end_tokens
        self._text = AnswerText(job.stop)
        self._logprobs = job.logprobs
        self._count = 0
        self._limit = min(job.max_tokens, context_length - len(job.prompt))
        grammar = job.grammar
        self._sampler = GrammarSampler(model, job.settings, grammar) if grammar else Sampler(model, job.settings)

    def step(self, context: Context, row: int) -> None:
        """Choose the token that follows batch row `row`, and give its text to the reader.

        Raises:
            ProtocolError: no token fits the job's grammar.
        """
        token = self._sampler.sample(context, row)
        if token in self._ends:
            self._finish("stop")
            return
        self.next_token = token
        self._count += 1
        piece = self._pieces[token]
        data = None if self._logprobs is None else self._data(context, row, token, self._logprobs)
        text, tokens, stopped = self._text.feed(piece, data)
        if stopped:
            self._end("stop", text, tokens)
        elif self._count >= self._limit:
            self._finish("length", text, tokens)
        elif text or tokens:
            self.generation.put(LlmChunk(text, tokens=tokens))

    def _data(self, context: Context, row: int, token: int, alternatives: int) -> Token:
        own, top = logprobs(context.logits(row), token, alternatives)
        return Token(id=token, text=self._pieces[token].decode("utf-8", "replace"), logprob=own, top=top)

    def _finish(self, reason: str, text: str = "", tokens: tuple[Token, ...] = ()) -> None:
        rest, more, stopped = self._text.flush()
        self._end("stop" if stopped else reason, text + rest, tokens + more)

    def _end(self, reason: str, text: str, tokens: tuple[Token, ...]) -> None:
        self.generation.put(LlmChunk(text, len(self.prompt), self._count, finish_reason=reason, tokens=tokens))
        self.done = True

    def fail(self, error: TgError) -> None:
        """End with an error."""
        self.generation.put(error)
        self.done = True

    def close(self) -> None:
        """Free what is native."""
        self._sampler.close()
