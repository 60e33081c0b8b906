"""Dialect -> gateway: answers that outlive their request, each found by its name and by the key that asked alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from typing_extensions import override

from tg_schema.errors import NotFound

MAX_KEPT_BYTES: Final = 4 * 1024 * 1024
"""Of one kept answer, with all that its dialect keeps beside it."""


class KeptAnswers(Protocol):
    """What is kept for the key of one request. A name has letters, digits, `-` and `_`, at most 80."""

    async def read(self, name: str) -> bytes:
        """What a `Keep` of this name made.

        Raises:
            NotFound: there is none, it was erased or has expired, or it is another key's.
            BusError: the bus did not answer.
        """

    async def erase(self, name: str) -> None:
        """Forget it. Raises as `read`."""


class _NothingKept(KeptAnswers):
    """Where nothing can be kept: before the request's key is known."""

    @override
    async def read(self, name: str) -> bytes:
        raise NotFound("nothing is kept here")

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
    """

    name: str
    make: Callable[[], bytes]
