"""Provider -> Generation -> engine: what is asked for; and back: tokens become the text that is read."""

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from tg_base.llm import LlmChunk
from tg_flow.llama.answer_text import AnswerText
from tg_flow.llama.mailbox import Mailbox
from tg_flow.llama.sampler_settings import SamplerSettings
from tg_schema import TgError, Token


class Job(msgspec.Struct, frozen=True):
    """One request, checked and in the model's terms.

    Attributes:
        prompt: token ids, at least one.
        settings: how the next token is chosen.
        max_tokens: after how many tokens the answer ends with "length".
        stop: texts that end the answer and are not part of it.
        logprobs: how many alternatives to report for each token; None = no token data.
        grammar: GBNF text that the answer must follow, from its rule `root`.
    """

    prompt: tuple[int, ...]
    settings: SamplerSettings
    max_tokens: int
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    grammar: str | None = None


class Generation:
    """One job on the engine: filled by the engine's thread, read by one task of one loop.

    The engine gives bare tokens; text is made of them in the loop, while the engine computes the next ones. So the
    engine may be a token or two further when a stop string is found; they are dropped and not counted.
    """

    def __init__(self, job: Job, pieces: Sequence[bytes], mailbox: Mailbox) -> None:
        """`pieces` are the bytes of each of the model's tokens."""
        self.job = job
        self.mailbox = mailbox
        self.cancelled = False
        self._pieces = pieces
        self._arrived: deque[int | Token | str | TgError] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._answer = AnswerText(job.stop)
        self._text = ""
        self._tokens: tuple[Token, ...] = ()
        self._prompt: int | None = len(job.prompt)
        self._count = 0
        self._end: str | TgError | None = None

    def put(self, token: int | Token) -> None:
        """Engine thread: the next token."""
        self._arrived.append(token)
        self.mailbox.put(self)

    def finish(self, end: str | TgError) -> None:
        """Engine thread: the answer's `finish_reason`, or why there is none; nothing comes after it."""
        self._arrived.append(end)
        self.mailbox.put(self)

    def wake(self) -> None:
        """Loop: take what the engine has put, and let the reader go on if there is something to read."""
        arrived = self._arrived
        while arrived:
            self._take(arrived.popleft())
        waiter = self._waiter
        if waiter is not None and (self._text or self._tokens or self._end) and not waiter.done():
            waiter.set_result(None)

    def _take(self, item: int | Token | str | TgError) -> None:
        if self._end is not None:
            return
        if isinstance(item, int):
            self._add(*self._answer.feed(self._pieces[item], None))
            self._count += 1
        elif isinstance(item, Token):
            self._add(*self._answer.feed(self._pieces[item.id], item))
            self._count += 1
        else:
            if isinstance(item, str):
                self._add(*self._answer.flush())
            self._end = self._end or item

    def _add(self, text: str, tokens: tuple[Token, ...], stopped: bool) -> None:
        self._text += text
        self._tokens += tokens
        if stopped:
            self._end = "stop"
            self.cancelled = True

    async def read(self) -> LlmChunk:
        """Everything that came since the last call, in one chunk; waits until there is something.

        Each chunk has the tokens that it counts; the prompt's stand on the first, `finish_reason` on the last.

        Raises:
            TgError: the generation failed; what had been generated was given before.
        """
        if not (self._text or self._tokens or self._end):
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None
        text, tokens, end = self._text, self._tokens, self._end
        if isinstance(end, TgError) and not text and not tokens:
            raise end
        prompt, count = self._prompt, self._count
        self._text, self._tokens, self._prompt, self._count = "", (), None, 0
        reason = end if isinstance(end, str) else None
        return LlmChunk(text, in_token=prompt, out_token=count, finish_reason=reason, tokens=tokens)

    def cancel(self) -> None:
        """Nobody reads any more: the engine's next step works without it. May be called from any thread."""
        self.cancelled = True
