"""Provider -> Embedding -> embedder: texts of one request; and back: their vectors."""

import asyncio
from collections.abc import Sequence

from tg_llama.core import Mailbox, OwnPooling
from tg_schema import TgError

Vector = tuple[float, ...]


class Embedding:
    """Written by the engine's thread, read by one task of one loop.

    Attributes:
        texts: the token ids of each text; none is empty.
        pooling: how a text's vectors become one.
        dimensions: how many numbers of it are kept, the first ones; None = all.
    """

    def __init__(
        self,
        texts: Sequence[tuple[int, ...]],
        pooling: OwnPooling,
        mailbox: Mailbox,
        dimensions: int | None = None,
    ) -> None:
        self.texts = texts
        self.pooling = pooling
        self.dimensions = dimensions
        self.mailbox = mailbox
        self.cancelled = False
        self._vectors: list[Vector] = [()] * len(texts)
        self._missing = len(texts)
        self._error: TgError | None = None
        self._done = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether it has all that it will get."""
        return not self._missing or self._error is not None

    def put(self, number: int, vector: Vector) -> None:
        """Add the vector of text `number`; called by the engine's thread."""
        self._vectors[number] = vector
        self._missing -= 1
        if not self._missing:
            self.mailbox.put(self)

    def finish(self, error: TgError) -> None:
        """Fail; called by the engine's thread. Nothing changes if it has ended before."""
        if not self.ended:
            self._error = error
            self.mailbox.put(self)

    def wake(self) -> None:
        """Wake the reader; called in the loop."""
        self._done.set()

    async def read(self) -> list[Vector]:
        """The vectors, in the order of the texts; waits until there are all.

        Raises:
            TgError: the engine failed.
        """
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._vectors

    def cancel(self) -> None:
        """Drop the texts that are not evaluated; may be called from any thread."""
        self.cancelled = True
