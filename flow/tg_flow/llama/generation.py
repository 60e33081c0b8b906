"""Provider -> Generation -> engine: what is asked for, and the pieces that come back."""

import asyncio
from collections import deque

import msgspec

from tg_base.llm_chunk import LlmChunk
from tg_flow.llama.mailbox import Mailbox
from tg_flow.llama.sampler_settings import SamplerSettings
from tg_schema.errors import TgError


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
    """One job on the engine: read by one task of one loop, filled by the engine's thread."""

    def __init__(self, job: Job, mailbox: Mailbox) -> None:
        self.job = job
        self.mailbox = mailbox
        self.cancelled = False
        self._arrived: deque[LlmChunk | TgError] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, piece: LlmChunk | TgError) -> None:
        """Engine thread: the next piece; a chunk with a `finish_reason`, or an error, is the last."""
        self._arrived.append(piece)
        self.mailbox.put(self)

    async def read(self) -> LlmChunk:
        """Everything that has arrived since the last call, in one chunk; waits until there is something.

        Raises:
            TgError: the generation failed; what had been generated was given before.
        """
        arrived = self._arrived
        while not arrived:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        first = arrived.popleft()
        if isinstance(first, TgError):
            raise first
        return self._merged(first) if arrived else first

    def _merged(self, first: LlmChunk) -> LlmChunk:
        chunks = [first]
        while self._arrived and isinstance(piece := self._arrived[0], LlmChunk):
            chunks.append(piece)
            self._arrived.popleft()
        last = chunks[-1]
        return LlmChunk(
            text="".join([chunk.text for chunk in chunks]),
            in_token=last.in_token,
            out_token=last.out_token,
            finish_reason=last.finish_reason,
            tokens=tuple(token for chunk in chunks for token in chunk.tokens),
        )

    def wake(self) -> None:
        """Loop: let the reader go on."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def cancel(self) -> None:
        """Nobody reads any more: the engine's next step works without it. May be called from any thread."""
        self.cancelled = True
