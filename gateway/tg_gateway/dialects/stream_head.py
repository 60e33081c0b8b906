"""The head of a kept stream's log, and its end: what its readers need in addition to the records."""

from typing import Final, Self

import msgspec

from tg_gateway.dialects.background import RecordedEnd
from tg_gateway.dialects.kept_answers import KeptAnswer
from tg_schema import decode
from tg_schema.errors import BadRequest, Unavailable

_UNNUMBERED: Final = b"null"


class StreamHead(msgspec.Struct, frozen=True):
    """The head of the log, written first.

    Attributes:
        door: the door at which the stream was requested.
        form: the form of its writer.
        digest: the digest of its `IdempotencyKey`; "" = it has no such key.
        begun: when it was requested, in Unix seconds.
        seconds: how long it is kept after its end; 0 = its name says until when.
    """

    door: str
    form: msgspec.Raw
    digest: str = ""
    begun: float = 0.0
    seconds: float = 0.0

    @classmethod
    def of(cls, answer: KeptAnswer) -> Self:
        """The head of a stream. Raises Unavailable if a gateway of another version has written it."""
        try:
            return decode(cls, answer.head or b"")
        except BadRequest:
            raise Unavailable("this answer was begun by a gateway of another version: ask through that one") from None

    @property
    def numbers(self) -> bool:
        """Whether its events have numbers, because other writers can make the same events."""
        return bytes(self.form) != _UNNUMBERED

    def is_over(self, answer: KeptAnswer, now: float) -> bool:
        """Whether the stream has ended and its time is over; False also if only its name says how long it is kept."""
        ended = answer.outcome != "running" and bool(self.seconds)
        return ended and (read_end(answer).at or self.begun) + self.seconds <= now


def read_end(answer: KeptAnswer) -> RecordedEnd:
    """What the log's end says, if its maker has written one."""
    return decode(RecordedEnd, answer.end) if answer.outcome == "ended" else RecordedEnd(0)
