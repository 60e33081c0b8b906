"""Dialect -> gateway: the answer to an `Ask` is made apart from the connection that asked, and kept while it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tg_gateway.dialects.answers.answer import Answer, StreamedAnswer
from tg_gateway.dialects.answers.kept_answers import KEPT_SECONDS, KeptAnswers
from tg_schema import TgError


class Finish(Protocol):
    """Makes the body that is stored when an answer ends."""

    def __call__(self, failure: TgError | None, *, cancelled: bool) -> bytes:
        """Called once, after the last record and the writer's `end`, or after a failure.

        Args:
            failure: what ended it early; None = it is whole.
            cancelled: the failure is that a client cancelled it.
        """


@dataclass(frozen=True, slots=True)
class Waiting:
    """The answer waits on the bus until its model has room, also while no gateway runs.

    Attributes:
        dialect: the `Dialect.restarts` of the one that asks.
        body: JSON; what that one's `restart` makes the same `Ask` of, in any gateway.
        seconds: for how long.
        attempts: how often a model may be asked for it: again only if the way to the last one was lost.
    """

    dialect: str
    body: bytes
    seconds: float
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Background:
    """How an answer is kept while it is made.

    Attributes:
        name: unguessable and new; or `chosen`.
        head: kept first, at most `MAX_KEPT_BYTES`.
        begin: kept before what the writer writes.
        keeps_parts: whether `begin`, `start` and what the writer writes are kept, for `KeptAnswers.follow`.
        finish: makes the end, at most `MAX_KEPT_BYTES`. The writer's `fail` is not called.
        answer: what the client gets, as soon as the head is kept; its argument is what its key keeps.
        chosen: the field that has the client's own word, of which the name is made; "" = none has. The name
            is taken where an answer of that name is kept; on a WebSocket, a request with the same head reads on in that
            one. The answer is made even if the client leaves before it is told, since it knows the name.
            An answer that fails with a retryable error before anything of it was written frees the name.
        start: makes what is kept once a processor works on it, perhaps after the writer's first bytes. Of an answer
            that waited the writer writes that itself, with its first record.
        seconds: for how long it can be read.
        waiting: it is made later, when there is room; None = now.
    """

    name: str
    head: bytes
    begin: bytes
    keeps_parts: bool
    finish: Finish
    answer: Callable[[KeptAnswers], Answer | StreamedAnswer]
    chosen: str = ""
    start: Callable[[], bytes] = bytes
    seconds: float = KEPT_SECONDS
    waiting: Waiting | None = None
