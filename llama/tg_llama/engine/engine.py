"""Generations -> engine -> tokens: one thread owns the context and evaluates all streams together."""

import atexit
import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from typing import NamedTuple, Self

import structlog

from tg_base.runtime import translate_defects
from tg_llama.core import EngineSizes, Model
from tg_llama.engine.batch import Batch
from tg_llama.engine.embedder import Embedder, Embedding
from tg_llama.engine.generation import Generation
from tg_llama.engine.prefix_cache import PrefixCache
from tg_llama.engine.prompt_budget import PromptBudget
from tg_llama.engine.slot import Slot
from tg_llama.lora import AdapterTurns
from tg_schema import TgError
from tg_schema.errors import ContextLengthExceeded, Internal, RateLimited, Unavailable

_DEFECT = "the model's engine failed; the service must be restarted"

CUT_ADVICE = "Cut the text into parts, or have it truncated."

log = structlog.get_logger()


class EngineStats(NamedTuple):
    """Totals since the engine was started, and its present state."""

    steps: int
    prompt_tokens: int
    generated_tokens: int
    embedded_tokens: int
    running: int
    waiting: int

    @classmethod
    def total(cls, several: Sequence[Self]) -> Self:
        """The sum of several engines' stats."""
        return cls(*map(sum, zip(*several, strict=True)))


class Engine:
    """Any thread may call `submit`, `stats` and `close`; everything else runs in the engine's own thread.

    One step: drop cancelled generations, start waiting ones while slots are free, evaluate one batch (a token of every
    answer, then as much of the prompts as fits), choose the next tokens, embed some texts. A batch is for one adapter
    or for the base model; they take turns.
    """

    def __init__(self, model: Model, sizes: EngineSizes) -> None:
        """Allocate memory and start. Several engines may share a model, which must outlive them.

        Raises:
            Unavailable: there is not enough memory.
        """
        self.model = model
        self.context_length = sizes.context
        self._most = sizes.slots
        self._room = self._most + sizes.waiting
        # At least one row for every stream, so that no answer pauses.
        self._batch = max(sizes.batch, self._most)
        self._budget = PromptBudget(self._batch)
        self._context = model.open_context(
            sequences=self._most,
            tokens=sizes.context,
            batch=self._batch,
            threads=sizes.threads,
        )
        self._slots: list[Slot] = []
        self._turns = AdapterTurns()
        self._prefixes = PrefixCache(self._context, self._most, divisible=model.divisible)
        self._waiting: deque[Generation] = deque()
        self._embedder = Embedder(model, sizes)
        self._inbox: SimpleQueue[Generation | Embedding | None] = SimpleQueue()
        self._steps = self._prompt_tokens = self._generated_tokens = self._embedded_tokens = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="llama-engine", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # the thread must end before the native library is unloaded

    def submit(self, generation: Generation) -> None:
        """Start `generation` as soon as a slot is free; read its pieces from the object itself.

        Raises:
            ContextLengthExceeded: its prompt leaves no room for an answer.
            RateLimited: too many generations wait already.
            Unavailable: the engine is closed.
        """
        length = len(generation.job.evaluated)
        if length >= self.context_length:
            raise ContextLengthExceeded.of_counts(length, self.context_length)
        self._admit(generation)

    def follow(self, task: Generation | Embedding) -> None:
        """Queue a task even if the queue is full: a further answer of a running request is not refused.

        Raises:
            Unavailable: the engine is closed.
        """
        self._inbox.put(task)
        # Check after the put: if the thread has already read its inbox for the last time, refuse the task here.
        if self._closing:
            raise Unavailable("the model is being shut down; ask again")

    def embed(self, embedding: Embedding) -> None:
        """Evaluate the texts of `embedding` beside the streams; read the vectors from the object itself.

        Raises as `submit`; ContextLengthExceeded, if a text is longer than the context.
        """
        longest = max(map(len, embedding.texts))
        if longest > self.context_length:
            raise ContextLengthExceeded.of_counts(longest, self.context_length, CUT_ADVICE)
        self._admit(embedding)

    def _admit(self, task: Generation | Embedding) -> None:
        if self.load() >= self._room:
            raise RateLimited("all slots of the model are busy and too many requests wait: ask again", retry_after=1.0)
        self.follow(task)

    def load(self) -> int:
        """The number of generations and embeddings, running and waiting."""
        return len(self._slots) + len(self._waiting) + len(self._embedder) + self._inbox.qsize()

    def stats(self) -> EngineStats:
        """The totals so far; the numbers are of slightly different moments."""
        return EngineStats(
            steps=self._steps,
            prompt_tokens=self._prompt_tokens,
            generated_tokens=self._generated_tokens,
            embedded_tokens=self._embedded_tokens,
            running=len(self._slots) + len(self._embedder),
            waiting=len(self._waiting) + self._inbox.qsize(),
        )

    def show_requests(self) -> tuple[list[tuple[str | None, int]], list[str | None]]:
        """Adapter and evaluated tokens of each running generation, and the adapter of each waiting one.

        None = the base model. A generation counts from its first step on. The lists are of slightly different moments.
        """
        running = [(slot.generation.adapter_name, slot.evaluated) for slot in tuple(self._slots)]
        return running, [generation.adapter_name for generation in tuple(self._waiting)]

    def close(self) -> None:
        """Fail all generations, join the thread and free the memory; may be called more than once."""
        atexit.unregister(self.close)
        self._closing = True
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        error: TgError = Unavailable("the model is being shut down; ask again")
        try:
            with translate_defects(Internal, _DEFECT, "llama.defect", log):
                while self._collect():
                    self._rearrange()
                    if self._slots:
                        self._step()
                    if self._embedder:
                        self._embedded_tokens += self._embedder.step(shared=bool(self._slots))
        except TgError as defect:
            error = defect
        finally:
            self._closing = True
            self._abandon(error)
            self._embedder.close()
            self._context.close()

    def _collect(self) -> bool:
        """Read the inbox, and sleep while there is nothing to do. Returns False when the engine is to close."""
        if not self._slots and not self._waiting and not self._embedder:
            self._take(self._inbox.get())
        while not self._inbox.empty():
            self._take(self._inbox.get())
        for generation in [each for each in self._waiting if each.cancelled]:
            self._waiting.remove(generation)
            generation.leave()
        return not self._closing

    def _take(self, task: Generation | Embedding | None) -> None:
        if task is None:
            return
        if isinstance(task, Embedding):
            self._embedder.add(task)
        else:
            self._waiting.append(task)

    def _rearrange(self) -> None:
        """Give free slots to waiting generations, or close the gaps: sequences must be numbered 0, 1, 2, ..."""
        slots = self._slots
        # Go from the last slot down: a slot that is moved into a gap was already checked, so it is running.
        for number in range(len(slots) - 1, -1, -1):
            if not (slots[number].done or slots[number].generation.cancelled):
                continue
            self._end(number)
            successor = self._next(number)
            if successor is not None:
                slots[number] = successor
                continue
            last = slots.pop()
            if number < len(slots):
                self._prefixes.move(last, number)
                slots[number] = last
        while len(slots) < self._most and (successor := self._next(len(slots))) is not None:
            slots.append(successor)

    def _end(self, number: int) -> None:
        slot = self._slots[number]
        slot.close()
        self._prefixes.remember(slot)
        self._turns.leave(slot.adapter)
        if slot.adapter is not None and not self._turns.has(slot.adapter):
            # The adapter's memory may be freed as soon as this generation has released it.
            self._context.use(None)
        slot.generation.leave()

    def _next(self, number: int) -> Slot | None:
        """Start the longest waiting generation in sequence `number`, after the tokens that it has in common with it."""
        while self._waiting:
            generation = self._waiting.popleft()
            try:
                slot = Slot(self.model, generation, self.context_length, number)
            except TgError as error:
                generation.put(error)
                generation.leave()
                continue
            self._prefixes.begin(slot, self._slots)
            self._turns.enter(slot.adapter)
            return slot
        return None

    def _step(self) -> None:
        adapter = self._turns.choose(time.monotonic())
        ready = self._prefixes.let_go_on(self._slots)
        slots = [slot for slot in ready if slot.adapter is adapter] if self._turns.mixed else ready
        self._context.use(adapter)
        answers = sum([slot.answering for slot in slots])
        prefill = self._budget.tokens(answers=answers, prompts=len(slots) - answers)
        batch = Batch.of(slots, self._batch, prefill, self._context.outputs)
        started = time.monotonic()
        failure = self._context.decode(batch.tokens, batch.positions, batch.sequences, batch.outputs)
        self._steps += 1
        if failure:
            log.error("llama.batch_failed", number=failure, tokens=len(batch.tokens))
            for slot in batch.slots:
                # The memory of these sequences is undefined now, so no later prompt may continue from it.
                slot.evaluated = 0
                slot.finish(Unavailable("the model could not evaluate this request; ask again"))
            return
        self._budget.learn(time.monotonic() - started, answers=answers, prompt_tokens=batch.prompt_tokens)
        self._prompt_tokens += batch.prompt_tokens
        self._generated_tokens += batch.generated
        for slot, row in batch.sampled:
            try:
                # A defect in one answer must not end the others.
                with translate_defects(Internal, "the model failed in this answer", "llama.answer_defect", log):
                    slot.step(self._context, row)
            except TgError as error:
                slot.finish(error)

    def _abandon(self, error: TgError) -> None:
        """Fail all generations with `error`."""
        for slot in self._slots:
            slot.close()
            if not slot.done:
                slot.finish(error)
        self._context.use(None)
        while not self._inbox.empty():
            self._take(self._inbox.get())
        for generation in self._waiting:
            generation.put(error)
        for generation in (*self._waiting, *[slot.generation for slot in self._slots]):
            generation.leave()
        self._embedder.fail(error)
        self._slots, self._waiting = [], deque()
