"""Provider -> Embedding -> embedder: texts of one request; and back: their vectors."""

from collections.abc import Sequence
from concurrent.futures import Future

from tg_llama.core import OwnPooling
from tg_schema import TgError

Vector = tuple[float, ...]


class Embedding:
    """Written by the engine's thread.

    Attributes:
        texts: the token ids of each text; none is empty.
        pooling: how a text's vectors become one.
        dimensions: how many numbers of it are kept, the first ones; None = all.
        vectors: those of all texts, in their order. Its reader may cancel it, from any thread.
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
        """Fail. Nothing changes if it has ended before."""
        if not self.vectors.done() and self.vectors.set_running_or_notify_cancel():
            self.vectors.set_exception(error)
