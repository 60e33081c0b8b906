"""Writings -> engine -> tokens: one thread evaluates the demo model for all answers together, step by step."""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue

import numpy as np
import structlog

from tg_base.llm import LlmChunk
from tg_base.runtime import translate_defects
from tg_llama.demo.demo_model import DemoModel
from tg_llama.demo.gguf_file import Floats
from tg_llama.demo.writing import Writing
from tg_schema import TgError
from tg_schema.errors import ContextLengthExceeded, Internal, RateLimited, Unavailable

SLOTS = 16
"""Answers side by side."""
MAX_WAITING = 256
PROMPT_TOKENS = 64
"""Tokens of a prompt in one step, which all answers wait for."""

log = structlog.get_logger()


class DemoEngine:
    """Any thread may call `submit` and `close`; everything else runs in the engine's own thread.

    One step: drop what is cancelled, read a part of one prompt, give each answer a token, wake each event loop once.

    Attributes:
        generated: tokens of all answers so far.
    """

    def __init__(self, model: DemoModel) -> None:
        self.generated = 0
        self._model = model
        self._inbox: SimpleQueue[Writing | None] = SimpleQueue()
        self._waiting: deque[Writing] = deque()
        self._writings: list[Writing] = []
        self._news: dict[asyncio.AbstractEventLoop, list[tuple[Writing, LlmChunk | TgError]]] = {}
        self._closing = False
        # No pool's thread: a process that is told to end must not wait for answers.
        self._thread = threading.Thread(target=self._run, name="demo-engine", daemon=True)
        self._thread.start()

    def submit(self, writing: Writing) -> None:
        """Begin as soon as a slot is free.

        Raises:
            ContextLengthExceeded: the prompt leaves no room for an answer.
            RateLimited: too many wait already.
            Unavailable: the engine is closed.
        """
        if len(writing.prompt) >= self._model.context:
            raise ContextLengthExceeded.of_counts(len(writing.prompt), self._model.context)
        if self.load >= SLOTS + MAX_WAITING:
            raise RateLimited("all slots of the model are busy and too many requests wait: ask again", retry_after=1.0)
        self._inbox.put(writing)
        # Asked after the put: what comes too late for the thread's last look into the inbox is refused here.
        if self._closing:
            raise Unavailable("the model is being shut down; ask again")

    @property
    def load(self) -> int:
        """How many run and wait."""
        return len(self._writings) + len(self._waiting) + self._inbox.qsize()

    def close(self) -> None:
        """Fail what runs, and join the thread; may be called more than once."""
        self._closing = True
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        error: TgError = Unavailable("the model is being shut down; ask again")
        try:
            with translate_defects(Internal, "the demo model failed; restart the service", "demo.defect", log):
                while self._collect():
                    self._arrange()
                    if self._writings:
                        self._step()
                    self._tell()
        except TgError as defect:
            error = defect
        finally:
            self._closing = True
            self._take_new()
            for writing in (*self._writings, *self._waiting):
                self._put(writing, error)
            self._tell()

    def _collect(self) -> bool:
        """Take new ones, and sleep while there is nothing to do; False when the engine is to close."""
        if not self._writings and not self._waiting:
            self._take(self._inbox.get())
        self._take_new()
        return not self._closing

    def _take_new(self) -> None:
        while not self._inbox.empty():
            self._take(self._inbox.get())

    def _take(self, writing: Writing | None) -> None:
        if writing is not None:
            self._waiting.append(writing)

    def _arrange(self) -> None:
        """Close the gaps, since a step evaluates neighbouring slots, and begin the next prompt after the last one."""
        self._writings = [writing for writing in self._writings if not (writing.done or writing.cancelled)]
        for slot, writing in enumerate(self._writings):
            if writing.slot != slot:
                self._model.move(writing.slot, slot)
                writing.slot = slot
        self._waiting = deque(writing for writing in self._waiting if not writing.cancelled)
        while self._waiting and len(self._writings) < SLOTS and not any(each.reading for each in self._writings[-1:]):
            writing = self._waiting.popleft()
            try:
                writing.begin(self._model.pairs, self._model.grammars, len(self._writings))
            except TgError as error:
                self._put(writing, error)
            else:
                self._writings.append(writing)

    def _step(self) -> None:
        answers = [writing for writing in self._writings if not writing.reading]
        if answers:
            self._evaluate(answers, [(writing.last,) for writing in answers])
        newest = self._writings[-1]
        if newest.reading:
            self._evaluate([newest], [newest.prompt[newest.evaluated : newest.evaluated + PROMPT_TOKENS]])

    def _evaluate(self, writings: Sequence[Writing], tokens: Sequence[tuple[int, ...]]) -> None:
        starts = np.array([writing.evaluated for writing in writings])
        logits = self._model.evaluate(np.array(tokens), starts, writings[0].slot)
        for writing, row in zip(writings, logits, strict=True):
            writing.evaluated += len(tokens[0])
            if not writing.reading:
                self._go_on(writing, row)

    def _go_on(self, writing: Writing, logits: Floats) -> None:
        try:
            # A defect in one answer must not end the others.
            with translate_defects(Internal, "the demo model failed in this answer", "demo.defect", log):
                chunk = writing.go_on(logits)
        except TgError as error:
            writing.done = True
            self._put(writing, error)
        else:
            self.generated += chunk.out_token or 0
            self._put(writing, chunk)

    def _put(self, writing: Writing, item: LlmChunk | TgError) -> None:
        self._news.setdefault(writing.loop, []).append((writing, item))

    def _tell(self) -> None:
        news, self._news = self._news, {}
        for loop, items in news.items():
            try:
                loop.call_soon_threadsafe(_deliver, items)
            except RuntimeError:  # closed: nobody reads
                for writing, _ in items:
                    writing.cancelled = True


def _deliver(items: Sequence[tuple[Writing, LlmChunk | TgError]]) -> None:
    for writing, item in items:
        writing.take(item)
