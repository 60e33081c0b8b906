"""Provider -> Generation -> engine: a job; and back: the engine's tokens, decoded to text."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import NamedTuple
from weakref import ref

import msgspec

from tg_base.llm import AnswerText, LlmChunk
from tg_llama.core import Adapter, SamplerSettings
from tg_llama.lora import Lease
from tg_schema import FinishReason, TgError, Token


class Job(msgspec.Struct, frozen=True):
    """One validated request, translated for the model.

    Attributes:
        prompt: token ids, at least one.
        settings: settings of the sampler.
        max_tokens: the number of tokens after which the answer ends with the reason "length".
        stop: the stop strings.
        stop_ids: tokens that end the answer, besides the model's own.
        keep_stop: whether the answer includes the stop string or stop id that ended it.
        min_tokens: the fewest tokens of the answer.
        ignore_eos: whether the model's own end tokens are never chosen.
        logprobs: number of alternatives to report for each token; None = no token data.
        prompt_logprobs: the same for each token of the prompt.
        scored: tokens after the prompt whose log-probabilities are wanted; None = generate an answer.
        end_token: whether to report the data of the token that ends the answer, too.
        shows_marks: whether control tokens that mark tool calls appear in the text.
        begun: the tokens of the answer that were already sent.
        grammar: grammar of the answer, in llguidance's language.
    """

    prompt: tuple[int, ...]
    settings: SamplerSettings
    max_tokens: int
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    keep_stop: bool = False
    min_tokens: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None
    grammar: str | None = None
    prompt_logprobs: int | None = None
    scored: tuple[int, ...] | None = None
    end_token: bool = False
    shows_marks: bool = False
    begun: tuple[int, ...] = ()

    @property
    def evaluated(self) -> tuple[int, ...]:
        """The tokens that the model evaluates before it chooses the first one itself."""
        # Leave out the last scored token: nobody asks what follows it.
        return (*self.prompt, *self.begun) if self.scored is None else (*self.prompt, *self.scored)[:-1]


class Ending(NamedTuple):
    """How an answer ended: its `finish_reason`, the stop string or stop id that ended it, and that token's data."""

    reason: FinishReason
    stopped_by: str | int | None = None
    token: Token | None = None


Output = int | Token | list[Token] | Ending | TgError
"""The next token, alone or with its data; before the first one, the tokens of the prompt; at the end, once, an ending
or an error."""


class Generation:
    """One job on the engine: written by the engine's thread, read by one task of one loop.

    The engine produces tokens. They are decoded to text in the loop, while the engine computes the next ones.
    Therefore the engine may be a token or two ahead when a stop string is found. Those tokens are dropped, not counted.

    Attributes:
        cached: the number of prompt tokens that were already in memory.
        caller: the owner of the prompt; memory of other callers' prompts is not reused for it.
    """

    def __init__(
        self,
        job: Job,
        pieces: Sequence[bytes],
        lease: Lease | None = None,
        *,
        counted: bool = True,
        caller: str | None = None,
    ) -> None:
        """`pieces` are the bytes of each of the model's tokens.

        `lease` is the lease of the adapter; None = the base model. `counted` says whether the prompt's tokens count:
        for several answers to one prompt they count once.
        """
        self.job = job
        self._lease = lease
        # The engine outlives event loops: it must not keep a closed loop, with its tasks, in memory.
        self._loop = ref(asyncio.get_running_loop())
        self._called = False
        self.caller = caller
        self.cancelled = False
        self._pieces = pieces
        self._arrived: deque[Output] = deque()
        self._woken = asyncio.Event()
        self._answer = AnswerText(job.stop, keep_stop=job.keep_stop, min_tokens=job.min_tokens)
        for token in job.begun:
            self._answer.feed(pieces[token], None)
        if job.begun and not job.keep_stop:
            # Text that would be held back was already sent.
            self._answer.flush()
        self._text = ""
        self._tokens: tuple[Token, ...] = ()
        self._prompt = len(job.prompt) + len(job.scored or job.begun) if counted else None
        # Written by the engine's thread, before the first token.
        self.cached = 0
        self._prompt_tokens: tuple[Token, ...] = ()
        self._count = 0
        self._end: Ending | TgError | None = None

    @property
    def adapter(self) -> Adapter | None:
        """The adapter to evaluate with; None = the base model."""
        return None if self._lease is None else self._lease.adapter

    @property
    def adapter_name(self) -> str | None:
        """The adapter's name; None = the base model."""
        return None if self._lease is None else self._lease.adapter.name

    def leave(self) -> None:
        """Release the adapter, which the engine no longer uses for this; may be called more than once."""
        if self._lease is not None:
            self._lease.release()

    def put(self, item: Output) -> None:
        """Pass on output of the engine; called by the engine's thread."""
        self._arrived.append(item)
        loop = self._loop()
        try:
            if loop is None:
                self.cancelled = True
            elif not self._called:
                self._called = True
                loop.call_soon_threadsafe(self.wake)
        except RuntimeError:  # the loop is closed, and the reader has left
            self.cancelled = True

    def wake(self) -> None:
        """Process the engine's output, and wake the reader if there is something to read; called in the loop."""
        self._called = False  # reset before the first pop, so that a later put schedules a new call
        arrived = self._arrived
        while arrived:
            self._take(arrived.popleft())
        if self._has_news:
            self._woken.set()

    @property
    def _has_news(self) -> bool:
        return bool(self._text or self._tokens or self._end or self._prompt_tokens)

    def _take(self, item: Output) -> None:
        # The engine was ahead when a stop string was found: drop its later tokens, and do not count them.
        if self._end is not None:
            return
        if isinstance(item, int):
            self._add(*self._answer.feed(self._pieces[item], None))
            self._count += 1
        elif isinstance(item, Token):
            self._add(*self._answer.feed(self._pieces[item.id], item))
            self._count += 1
        elif isinstance(item, list):
            self._prompt_tokens = tuple(item)
        else:
            if isinstance(item, Ending):
                self._add(*self._answer.flush())
                if item.token is not None and self._end is None:
                    self._tokens += (item.token,)
            # The flushed text may complete a stop string; then the reason "stop" takes precedence.
            self._end = self._end or item

    def _add(self, text: str, tokens: tuple[Token, ...], stopped: bool) -> None:
        self._text += text
        self._tokens += tokens
        # The engine sees `cancelled` before its next step, and gives the slot to the next generation.
        if stopped:
            self._end = Ending("stop", self._answer.stopped_by)
            self.cancelled = True

    async def read(self) -> LlmChunk:
        """Return all output since the last call as one chunk; waits until there is some.

        Each chunk counts its own tokens. The first chunk has the prompt's count, the last one the `finish_reason`.

        Raises:
            TgError: the generation failed; text generated before was returned by earlier calls.
        """
        if not self._has_news:
            self._woken.clear()
            await self._woken.wait()
        text, tokens, end = self._text, self._tokens, self._end
        # Return the text before an error first; the next call raises the error.
        if isinstance(end, TgError) and not text and not tokens:
            raise end
        prompt, count = self._prompt, self._count
        cached = None if prompt is None else self.cached
        prompt_tokens = self._prompt_tokens
        self._text, self._tokens, self._prompt, self._count, self._prompt_tokens = "", (), None, 0, ()
        settings = self.job.settings
        if not isinstance(end, Ending):
            return LlmChunk(
                text, in_token=prompt, cached_token=cached, out_token=count, tokens=tokens, prompt_tokens=prompt_tokens
            )
        return LlmChunk(
            text,
            in_token=prompt,
            cached_token=cached,
            out_token=count,
            finish_reason=end.reason,
            stopped_by=end.stopped_by,
            seed=None if settings.is_greedy else settings.seed,
            tokens=tokens,
            prompt_tokens=prompt_tokens,
        )

    def cancel(self) -> None:
        """Stop the generation: the engine drops it at its next step. May be called from any thread."""
        self.cancelled = True


Begin = Callable[[], Awaitable[tuple[Generation, str | None]]]
"""Submits a generation. Returns it, and the text with which its answer begins, if any."""


async def read_answer(begin: Begin) -> AsyncGenerator[LlmChunk, None]:
    """The chunks of a generation up to its end; closing it stops the generation.

    Raises:
        TgError: the generation failed.
    """
    generation, echo = await begin()
    try:
        if echo is not None and generation.job.prompt_logprobs is None:
            yield LlmChunk(echo)
        while True:
            chunk = await generation.read()
            # The tokens of the prompt come before any text.
            if echo is not None and chunk.prompt_tokens:
                chunk = msgspec.structs.replace(chunk, text=echo + chunk.text)
            yield chunk
            if chunk.finish_reason is not None:
                return
    finally:
        generation.cancel()
