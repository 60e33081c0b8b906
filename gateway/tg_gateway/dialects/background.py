"""Dialect -> gateway: answers that need no service, and answers that are made independently of the connection.

The answer to an `Ask` that is made apart is stored meanwhile.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tg_gateway.dialects.kept_answers import KEPT_SECONDS, KeptAnswer, KeptAnswers
from tg_schema import Error, TgError

BEGUN_LINES: Final = b"\n\n"
"""The part that says that a processor works on an answer in the background; no part of records looks like it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer that needs no service: a list of models, or a refusal.

    Attributes:
        headers: further headers. `X-Request-Id` and, where they are known, `Retry-After`, `Allow` and
            `WWW-Authenticate` are the gateway's.
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
        content_type: as for `Writer`.
        headers: further headers.
        keep_alive: bytes sent during silence.
        fail: makes the last bytes over HTTP if an error comes after the first bytes. On a WebSocket, the dialect's
            conversation sends the error.
        cut_after_failure: as for `Writer`.
        events_apart: as for `Writer`.
    """

    parts: AsyncGenerator[bytes, None]
    content_type: str
    headers: Mapping[str, str]
    keep_alive: bytes
    fail: Callable[[TgError], bytes] = lambda _: b""
    cut_after_failure: bool = True
    events_apart: bool = False


class RecordedEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of an answer in the background.

    Attributes:
        at: when it ended, in Unix seconds.
        error: what ended it early.
        cancelled: whether `error` is set because a client cancelled the answer.
        records: all records, joined into as few as possible; none if only the parts are kept.
    """

    at: int
    error: Error | None = None
    cancelled: bool = False
    records: tuple[msgspec.Raw, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """The answer waits on the bus until its model has capacity, even while no gateway runs.

    Attributes:
        seconds: how long it may wait.
        attempts: how often a model may be asked; another attempt follows only if the connection to the last one was
            lost.
    """

    seconds: float
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Background:
    """How an answer is stored while it is made: as its records, from which every reader makes the same answer.

    The writer of its `Ask` is not used.

    Attributes:
        name: unguessable and new, unless `joins` is set.
        head: stored first, at most `MAX_KEPT_BYTES`: all that a reader needs beside the records.
        keeps_parts: whether the records are stored as they come, for `KeptAnswers.follow`.
        answer: makes the client's answer as soon as the head is stored; its argument is the kept answers of its key.
        joins: set if the name is made of a client's own word or request. It decides about an answer that is kept under
            this name: True = the request gets it, False = the request is refused, None = that answer has had its time
            and a new one is made. The answer is made even if the client leaves before the first response, since the
            client can ask again. An answer that fails with a retryable error before anything of it was written frees
            the name.
        chosen: the field with the client's word.
        keeps_whole: whether the end has the whole answer, at most `MAX_KEPT_BYTES`.
        seconds: how long it can be read.
        waiting: set if it is made later, when there is capacity; None = now.
        optional: whether the client gets its answer by its connection alone, if it cannot be made apart.
        listed: whether it is one of the streams that `KeptAnswers.list` has.
    """

    name: str
    head: bytes
    keeps_parts: bool
    answer: Callable[[KeptAnswers], Answer | StreamedAnswer]
    joins: Callable[[KeptAnswer], bool | None] | None = None
    chosen: str = ""
    keeps_whole: bool = True
    seconds: float = KEPT_SECONDS
    waiting: Waiting | None = None
    optional: bool = False
    listed: bool = False
