"""One attempt at a request: where it was sent and when, which processor has it, and what it has answered."""

from typing import Any, Final, NamedTuple, Self

import msgspec

from tg_base.client.membership import Service
from tg_base.protocol import MAX_NUMBER, Route, StreamKey
from tg_base.telemetry import Span

ADOPTED: Final = 1000
"""An adopted attempt's number is the former number plus this. So all know the number under which the processor has
begun the answer, and records its call."""


class StreamOrigin(NamedTuple):
    """Where a kept answer is made: the stream, the attempt under which its requestor has it, and the process."""

    stream: str
    attempt: int
    processor: str


class Attempt(msgspec.Struct, eq=False):
    """One processor is to answer. Another one, or another model, is asked by another attempt of the same stream.

    Attributes:
        key: the stream and the attempt's number, which its frames bear.
        route: the service that is asked.
        span: the request's.
        asked_at: when it began, by the requestor's clock.
        began_at: the same by the loop's clock, as `came_at`.
        operation: the operation in the record of usage; None = the attempt is no call of a model.
        prompt_bytes: bytes of the call's prompt.
        sent: the records that have arrived, as long as another processor could continue after them; None = none could.
        begun_as: for an answer that another requestor requested, the number under which its processor began it.
        processor: the process that has it; None = none so far, or a plain peer.
        link: number of the link that carries its answer.
        direct: the process that it was sent to; None = it was queued.
        place: the processor whose free slots it is counted against, if it has a cache key.
        accepted: whether its processor has said that it works on it.
        fetching: whether its processor asks for the body in parts; once it has all, it asks for a confirmation.
        pieces: records that have arrived, here or at the requestor that had it before.
        missed: records that arrived only at the requestor that had it before.
        received: bytes of the JSON of the records that came here.
        last: the JSON of the last record.
        came_at: when the last record arrived; 0 = none has arrived.
        complete: whether that record ended the answer.
    """

    key: StreamKey
    route: Route[Any, Any]
    span: Span
    asked_at: float
    began_at: float
    operation: str | None = None
    prompt_bytes: int = 0
    sent: list[bytes] | None = None
    begun_as: int = 0
    processor: str | None = None
    link: int = 0
    direct: str | None = None
    place: Service | None = None
    accepted: bool = False
    fetching: bool = False
    pieces: int = 0
    missed: int = 0
    received: int = 0
    last: bytes = b""
    came_at: float = 0.0
    complete: bool = False

    def adopt(self, origin: StreamOrigin, after: int) -> None:
        """Continue to read, after this many records, an answer that another requestor requested."""
        self.key = StreamKey(origin.stream, origin.attempt + ADOPTED)
        self.begun_as, self.processor = origin.attempt % ADOPTED, origin.processor
        self.pieces = self.missed = after
        # No link of this answer is known yet, so none can be over.
        self.link = MAX_NUMBER

    def follow(self, asked_at: float, began_at: float) -> Self:
        """The next attempt, about which nothing is known yet: late frames of this one do not match it."""
        key, sent = StreamKey(self.key.stream, self.key.attempt + 1), None if self.sent is None else list[bytes]()
        return type(self)(key, self.route, self.span, asked_at, began_at, self.operation, self.prompt_bytes, sent)

    @property
    def answered(self) -> bool:
        """Whether a record has arrived, here or at the requestor that had it before."""
        return self.pieces > 0 or self.begun_as > 0

    def place_at(self, place: Service | None) -> None:
        """Count it against this processor alone; None = against none."""
        if self.place is not None:
            self.place.keyed -= 1
        self.place = place
        if place is not None:
            place.keyed += 1
