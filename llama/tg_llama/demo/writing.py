"""Provider -> Writing -> engine: one answer while it is written; and back: its chunks, in the loop that asked."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from tg_base.llm import AnswerText, LlmChunk
from tg_llama.demo.byte_pairs import BytePairs
from tg_llama.demo.gguf_file import Floats
from tg_llama.demo.token_choice import Preferences, TokenChoice
from tg_llama.grammar import TokenGrammars
from tg_schema import FinishReason, TgError, Token


class Task(msgspec.Struct, frozen=True):
    """One request in the model's terms: `grammar` is that of the answer, in llguidance's language."""

    prompt: tuple[int, ...]
    preferences: Preferences
    max_tokens: int
    stop: tuple[str, ...] = ()
    grammar: str | None = None


class Writing:
    """Written by the engine's thread, read by one task of the loop in which it was made.

    Attributes:
        prompt: its tokens.
        loop: the reader's.
        cancelled: whether the reader is gone.
        evaluated: how many tokens of prompt and answer the model has in memory.
        slot: where; a prompt is in the last one.
        last: the token of the answer that is evaluated next.
        done: whether its end is on the way.
    """

    def __init__(self, task: Task) -> None:
        self.prompt = task.prompt
        self.loop = asyncio.get_running_loop()
        self.cancelled = self.done = False
        self.evaluated = self.slot = self.last = 0
        self._task = task
        self._room = task.max_tokens
        self._text = AnswerText(task.stop)
        self._chunks: asyncio.Queue[LlmChunk | TgError] = asyncio.Queue()

    @property
    def reading(self) -> bool:
        """Whether the prompt is not evaluated yet."""
        return self.evaluated < len(self.prompt)

    def begin(self, pairs: BytePairs, grammars: TokenGrammars, slot: int) -> None:
        """Take a slot. Raises: BadRequest, if the grammar cannot be read."""
        grammar = self._task.grammar
        self.slot = slot
        self._pairs = pairs
        self._choice = TokenChoice(pairs, self._task.preferences, grammars.start(grammar) if grammar else None)

    def go_on(self, logits: Floats) -> LlmChunk:
        """Choose the next token. Raises: ProtocolError, if none fits the grammar."""
        token = self._choice.choose(logits)
        if token in self._pairs.end_tokens:
            return self._end(0, "stop", *self._text.flush())
        self.last = token
        self._room -= 1
        text, tokens, stopped = self._text.feed(self._pairs.pieces[token], self._choice.describe(token, logits))
        if stopped:
            return self._end(1, "stop", text, tokens, stopped)
        if self._room:
            return LlmChunk(text, tokens=tokens, out_token=1)
        rest, more, stopped = self._text.flush()
        return self._end(1, "length", text + rest, tokens + more, stopped)

    def _end(self, count: int, reason: FinishReason, text: str, tokens: tuple[Token, ...], stopped: bool) -> LlmChunk:
        self.done = True
        wanted = self._task.preferences
        return LlmChunk(
            text,
            tokens=tokens,
            in_token=len(self.prompt),
            cached_token=0,
            out_token=count,
            finish_reason="stop" if stopped else reason,
            stopped_by=self._text.stopped_by,
            seed=None if wanted.is_greedy else wanted.seed,
        )

    def take(self, chunk: LlmChunk | TgError) -> None:
        """Hand a chunk to the reader; called in the loop. They are as few as the context has tokens."""
        self._chunks.put_nowait(chunk)

    async def read(self) -> AsyncGenerator[LlmChunk, None]:
        """The chunks up to the end; closing it stops the writing before its next token.

        Raises:
            TgError: it failed.
        """
        try:
            while True:
                chunk = await self._chunks.get()
                if isinstance(chunk, TgError):
                    raise chunk
                yield chunk
                if chunk.finish_reason is not None:
                    return
        finally:
            self.cancelled = True
