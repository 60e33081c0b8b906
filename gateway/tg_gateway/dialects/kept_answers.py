"""Dialect -> gateway: answers that outlive their request, found by their name and only for the key that asked."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tg_schema.errors import NotFound

KEPT_SECONDS: Final = 24 * 3600.0
"""How long an answer can be read by default."""
MAX_KEPT_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of one kept answer, including all that its dialect stores with it."""

Outcome = Literal["running", "ended", "died", "cancelled", "too-large", "expired"]
"""The state of a kept answer. An answer has no `end` if nobody wrote one: its gateway died, or did not answer a cancel,
or the end was too large to keep. "expired": it waited for capacity until its time was over; no model was asked."""


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The complete part of one kept answer.

    Attributes:
        head: for an answer in the background, the head of its `Background`; otherwise None.
        end: the body that `Keep` made, or a `RecordedEnd`; empty unless the outcome is "ended".
        outcome: its state.
        cut: whether some of its parts are missing, because they were too many or the bus did not take them.
        begun: whether a processor works, or has worked, on it.
        left: whether the client that asked first has gone.
    """

    head: bytes | None
    end: bytes
    outcome: Outcome
    cut: bool
    begun: bool = True
    left: bool = False


class KeptAnswers:
    """The answers that are kept for the key of one request: none, before the key is known.

    A name has letters, digits, `-` and `_`, at most 80.
    """

    def of(self, key: str) -> "KeptAnswers":
        """The answers that are kept for another key."""
        return self

    async def list(self) -> Sequence[bytes]:
        """Each stream that is kept, as the JSON of a `ListedStream`, the oldest first. Raises BusError."""
        return ()

    async def follow_list(self) -> AsyncGenerator[bytes, None]:
        """As `list`, and then the streams that begin later. It ends after some minutes: come again, and get all again.

        An empty one means that there are no streams at the moment.

        Raises:
            RateLimited: too many clients follow answers.
            BusError: the bus did not answer.
        """
        yield b""

    async def read(self, name: str) -> KeptAnswer:
        """The current state of the answer with this name.

        Raises:
            NotFound: there is no such answer, it was erased or has expired, or it is another key's.
            BusError: the bus did not answer.
        """
        raise NotFound("nothing is kept here")

    async def follow(self, name: str, head: bytes | None = None) -> AsyncGenerator[bytes | KeptAnswer, None]:
        """Yields the parts of an answer in the background from the first on, as they come, and finally the answer.

        The parts joined are the records of the answer, each on a line of its own; a part may begin and end anywhere.
        `BEGUN_LINES` come when a processor works on the answer; they may be missing. An empty part says that more is
        coming. If the bus cannot follow logs, there is only the answer's current state.

        Args:
            name: the name of the answer.
            head: the head of the answer that is meant, if another answer may take its name; None = any.

        Raises:
            NotFound: as `read`, or it has another head; also while iterating, if it is erased.
            RateLimited: too many clients follow answers.
            BusError: as `read`.
        """
        yield await self.read(name)

    async def cancel(self, name: str, head: bytes | None = None) -> KeptAnswer:
        """Stop an answer in the background, whichever gateway runs it; returns the ended answer.

        An answer that has ended, or has another head, stays as it is. Raises as `read`.
        """
        return await self.read(name)

    async def erase(self, name: str) -> None:
        """Erase an answer; if it runs, it is stopped. Raises as `read`."""
        await self.read(name)


NOTHING_KEPT: Final = KeptAnswers()


@dataclass(frozen=True, slots=True)
class Keep:
    """How the answer to an `Ask` is kept.

    Attributes:
        name: unguessable and new.
        make: called once, after the last record and the writer's `end`; returns the body to keep, at most
            `MAX_KEPT_BYTES`.
        optional: whether the answer is sent even if it cannot be kept.
    """

    name: str
    make: Callable[[], bytes]
    optional: bool = False
