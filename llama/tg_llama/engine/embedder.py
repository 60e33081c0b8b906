"""Embeddings -> vectors: an engine's second context, whose steps alternate with the steps of the streams."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import structlog

from tg_llama.core import EngineSizes, Model, OwnPooling, VectorContext
from tg_schema import TgError
from tg_schema.errors import Unavailable

Vector = tuple[float, ...]
Rows = np.ndarray[Any, np.dtype[np.floating[Any]]]

SHARED_SECONDS = 0.01
"""Target duration of a step while streams wait for its end, in seconds."""

MIN_SHARED_TOKENS = 32
"""The fewest tokens of a step while streams wait, however slow the model."""

VECTOR_DIGITS = 8
"""Decimals of a vector's numbers: more than the precision of the model's own floats."""

log = structlog.get_logger()


class Embedding:
    """One request for vectors; the engine's thread fills it.

    Attributes:
        texts: the token ids of each text; none is empty.
        pooling: how the vectors of a text's tokens become one.
        dimensions: how many numbers of a vector are kept, from the first on; None = all.
        vectors: the vectors of all texts, in their order. The reader may cancel this future from any thread.
    """

    def __init__(self, texts: Sequence[tuple[int, ...]], pooling: OwnPooling, dimensions: int | None = None) -> None:
        self.texts = texts
        self.pooling = pooling
        self.dimensions = dimensions
        self.vectors: Future[list[Vector]] = Future()
        self._found: list[Vector] = [()] * len(texts)
        self._missing = len(texts)

    def put(self, number: int, vector: Vector) -> None:
        """Add the vector of text `number`."""
        self._found[number] = vector
        self._missing -= 1
        if not self._missing and self.vectors.set_running_or_notify_cancel():
            self.vectors.set_result(self._found)

    def finish(self, error: TgError) -> None:
        """Fail the request, unless it has ended already."""
        if not self.vectors.done() and self.vectors.set_running_or_notify_cancel():
            self.vectors.set_exception(error)


class _Text:
    """A text that is being evaluated, in a sequence of the context."""

    def __init__(self, embedding: Embedding, number: int, sequence: int) -> None:
        self.embedding = embedding
        self.sequence = sequence
        self.ids = embedding.texts[number]
        self.evaluated = 0
        self._number = number
        self._pooled: Rows | None = None

    @property
    def done(self) -> bool:
        return self.evaluated == len(self.ids)

    def take(self, rows: Rows) -> None:
        """Add the vectors of the next tokens. After the last one, pass on the text's pooled vector."""
        self.evaluated += len(rows)
        if self.embedding.pooling == "last":
            self._pooled = rows[-1]
        elif self.embedding.pooling == "cls":
            self._pooled = rows[0] if self._pooled is None else self._pooled
        else:
            # Sum in double precision: over a long text, single precision would lose digits.
            total = rows.sum(axis=0, dtype=np.float64)
            self._pooled = total if self._pooled is None else self._pooled + total
        if self.done:
            self.embedding.put(self._number, _normalized(self._pooled[: self.embedding.dimensions]))


class Embedder:
    """Evaluates texts. Belongs to the engine's thread.

    Each step evaluates texts of all requests in turn, so that a long list does not delay a short one. A step is short
    while streams wait. The context's memory is allocated for the first text.
    """

    def __init__(self, model: Model, sizes: EngineSizes) -> None:
        self._model = model
        self._sizes = sizes
        self._context: VectorContext | None = None
        self._waiting: deque[tuple[Embedding, int]] = deque()
        self._rest: _Text | None = None
        self._shared_tokens = MIN_SHARED_TOKENS

    def __len__(self) -> int:
        """The number of requests with texts that are not yet evaluated."""
        return len(self._waiting) + (self._rest is not None)

    def add(self, embedding: Embedding) -> None:
        """Queue the texts of a request for the next steps."""
        self._waiting.append((embedding, 0))

    def step(self, *, shared: bool) -> int:
        """Evaluate one batch, a short one if streams wait for its end; returns its number of tokens."""
        try:
            context = self._context = self._context or self._model.open_vectors(self._sizes)
        except TgError as error:
            self.fail(error)
            return 0
        parts = self._fill(context, min(self._shared_tokens, context.rows) if shared else context.rows)
        if not parts:
            return 0
        started = time.monotonic()
        rows = context.evaluate(
            [(text.sequence, text.evaluated, text.ids[text.evaluated : text.evaluated + n]) for text, n in parts]
        )
        if rows is None:
            log.error("llama.batch_failed", texts=len(parts))
            for text, _ in parts:
                text.embedding.finish(Unavailable("the model could not evaluate this text; ask again"))
        elif len(rows) >= MIN_SHARED_TOKENS:
            speed = len(rows) / (time.monotonic() - started)
            self._shared_tokens = max(MIN_SHARED_TOKENS, int(speed * SHARED_SECONDS))
        return self._pass_on(context, parts, rows)

    def _fill(self, context: VectorContext, room: int) -> list[tuple[_Text, int]]:
        """The texts of the next step, each with the number of tokens to evaluate. The last text may continue later."""
        rest, self._rest = self._rest, None
        if rest is not None and rest.embedding.vectors.done():
            context.forget(rest.sequence)
            rest = None
        free = (number for number in range(context.sequences) if rest is None or number != rest.sequence)
        parts: list[tuple[_Text, int]] = []
        text = rest or self._next(free)
        while text is not None:
            count = min(room, len(text.ids) - text.evaluated)
            if context.whole and count < len(text.ids):
                # All tokens of the text attend to each other, so it waits for a step that can hold it whole.
                self._rest = text
                break
            parts.append((text, count))
            room -= count
            text = self._next(free) if room else None
        return parts

    def _next(self, free: Iterator[int]) -> _Text | None:
        """The next text of the request whose turn it is; None if there is no text, or no free sequence."""
        while self._waiting and self._waiting[0][0].vectors.done():
            self._waiting.popleft()
        sequence = next(free, None) if self._waiting else None
        if sequence is None:
            return None
        embedding, number = self._waiting.popleft()
        if number + 1 < len(embedding.texts):
            self._waiting.append((embedding, number + 1))
        return _Text(embedding, number, sequence)

    def _pass_on(self, context: VectorContext, parts: list[tuple[_Text, int]], rows: Rows | None) -> int:
        taken = 0
        for text, count in parts:
            if rows is not None:
                text.take(rows[taken : taken + count])
                taken += count
            if rows is not None and not text.done:
                self._rest = text
            else:
                context.forget(text.sequence)
        return taken

    def fail(self, error: TgError) -> None:
        """Fail all requests with `error`."""
        if self._rest is not None:
            self._rest.embedding.finish(error)
        for embedding, _ in self._waiting:
            embedding.finish(error)
        self._rest, self._waiting = None, deque()

    def close(self) -> None:
        """Free the memory."""
        if self._context is not None:
            self._context.close()


def _normalized(vector: Rows) -> Vector:
    """The vector with length 1, in plain Python numbers."""
    vector = vector.astype(np.float64)
    length = float(np.linalg.norm(vector))
    numbers: list[float] = np.round(vector / (length or 1.0), VECTOR_DIGITS).tolist()
    return tuple(numbers)
