"""Dialect -> gateway: answers that no service has to be asked for, and those that are made apart from the connection.

The answer to an `Ask` that is made apart is stored meanwhile.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from tg_gateway.dialects.kept_answers import KEPT_SECONDS, KeptAnswers
from tg_schema import TgError


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer that no service has to be asked for: a list of models, a refusal.

    Attributes:
        headers: further ones. `X-Request-Id` and, where they are known, `Retry-After`, `Allow` and `WWW-Authenticate`
            are the gateway's.
    """

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """An answer whose bytes come over time: a kept answer that is still being made.

    Attributes:
        parts: iterated once, and closed. A TgError before the first bytes becomes a refusal; later, `fail` writes the
            end.
        content_type: as in `Writer`.
        headers: further headers.
        keep_alive: bytes sent during silence.
        fail: makes the last bytes over HTTP if an error comes after the first bytes; then the connection is cut. On a
            WebSocket, the dialect's conversation sends the error.
    """

    parts: AsyncGenerator[bytes, None]
    content_type: str
    headers: Mapping[str, str]
    keep_alive: bytes
    cut_after_failure: ClassVar[bool] = True
    events_apart: ClassVar[bool] = False
    fail: Callable[[TgError], bytes] = lambda _: b""


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
    """The answer waits on the bus until its model has capacity, even while no gateway runs.

    Attributes:
        dialect: the `Dialect.restarts` of the dialect that asks.
        body: JSON from which that dialect's `restart` makes the same `Ask`, in any gateway.
        seconds: how long it may wait.
        attempts: how often a model may be asked; another attempt follows only if the connection to the last one was
            lost.
    """

    dialect: str
    body: bytes
    seconds: float
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Background:
    """How an answer is stored while it is made.

    Attributes:
        name: unguessable and new; or `chosen`.
        head: stored first, at most `MAX_KEPT_BYTES`.
        begin: stored before the writer's bytes.
        keeps_parts: whether `begin`, `start` and the writer's bytes are stored, for `KeptAnswers.follow`.
        finish: makes the end, at most `MAX_KEPT_BYTES`. The writer's `fail` is not called.
        answer: makes the client's answer as soon as the head is stored; its argument is the kept answers of its key.
        chosen: the field with the client's own word, from which the name is made; "" = there is none. The request is
            refused if an answer of that name is kept; on a WebSocket, a request with the same head reads on in that
            answer. The answer is made even if the client leaves before the first response, since it knows the name. An
            answer that fails with a retryable error before anything of it was written frees the name.
        start: makes the part that is stored once a processor works on it, perhaps after the writer's first bytes. For
            an answer that waited, the writer itself writes that part, with its first record.
        seconds: how long it can be read.
        waiting: set if it is made later, when there is capacity; None = now.
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
