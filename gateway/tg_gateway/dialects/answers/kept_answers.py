"""Dialect -> gateway: answers that outlive their request, each found by its name and by the key that asked alone."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from typing_extensions import override

from tg_schema.errors import NotFound

KEPT_SECONDS: Final = 24 * 3600.0
"""How long an answer can be read that does not say otherwise."""
MAX_KEPT_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of one kept answer, with all that its dialect keeps beside it."""

Outcome = Literal["running", "ended", "died", "cancelled", "too-large", "expired"]
"""How a kept answer stands. Where nobody could say how it ended, it has no `end`: its gateway has died, or it was
cancelled and the gateway did not answer, or the end was too large to be kept. One that has expired waited for room
until its time was over; no model was asked."""


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """One answer, as far as it is kept.

    Attributes:
        head: of one in the background, that of its `Background`; None of another.
        end: what `Keep` or `Background` made at its end; empty unless the outcome is "ended".
        outcome: how it stands.
        cut: whether its parts are not whole, since they were too many or the bus did not take them.
        begun: whether a processor works, or has worked, on it.
    """

    head: bytes | None
    end: bytes
    outcome: Outcome
    cut: bool
    begun: bool = True


class KeptAnswers(Protocol):
    """What is kept for the key of one request. A name has letters, digits, `-` and `_`, at most 80."""

    async def read(self, name: str) -> KeptAnswer:
        """The answer of this name, as it stands.

        Raises:
            NotFound: there is none, it was erased or has expired, or it is another key's.
            BusError: the bus did not answer.
        """

    def follow(self, name: str, head: bytes | None = None) -> AsyncGenerator[bytes | KeptAnswer, None]:
        """The parts of an answer in the background from its first, as they come, and last the answer.

        A part may begin and end anywhere in what the writer wrote. An empty one says that more is waited for.

        Args:
            name: of the answer.
            head: of the answer that is meant, where another one may take its name; None = whichever has it.

        Raises:
            NotFound: as `read`, or it has another head; also while iterating, where it is erased.
            RateLimited: too many follow.
            BusError: as `read`.
        """

    async def cancel(self, name: str, head: bytes | None = None) -> KeptAnswer:
        """Stop an answer in the background, whichever gateway runs it; the answer, which has ended.

        One that has ended already stays as it is; so does one with another head than the given one. Raises as `read`.
        """

    async def erase(self, name: str) -> None:
        """Forget it; one that runs is stopped. Raises as `read`."""


class _NothingKept(KeptAnswers):
    """Where nothing can be kept: before the request's key is known."""

    @override
    async def read(self, name: str) -> KeptAnswer:
        raise NotFound("nothing is kept here")

    @override
    async def follow(self, name: str, head: bytes | None = None) -> AsyncGenerator[bytes | KeptAnswer, None]:
        yield await self.read(name)

    @override
    async def cancel(self, name: str, head: bytes | None = None) -> KeptAnswer:
        return await self.read(name)

    @override
    async def erase(self, name: str) -> None:
        raise NotFound("nothing is kept here")


NOTHING_KEPT: Final = _NothingKept()


@dataclass(frozen=True, slots=True)
class Keep:
    """The answer to an `Ask` is to be kept.

    Attributes:
        name: unguessable and new.
        make: called once, after the last record and the writer's `end`; what is kept, at most `MAX_KEPT_BYTES`.
        optional: whether the answer is sent also if it cannot be kept.
    """

    name: str
    make: Callable[[], bytes]
    optional: bool = False
