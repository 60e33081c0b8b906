"""Reader of a stream -> transport: what the reader has received, so that another connection can resume from there."""

import re
from typing import Self

import msgspec

from tg_schema.errors import BadRequest

_PERIOD = re.compile(r"[0-9]{1,6}[smh]", re.ASCII)


class Position(msgspec.Struct):
    """A reader's position in a stream.

    Attributes:
        keep: how long the gateway is asked to keep the stream: 90s, 10m or 2h; None = it is not asked.
        stream: the id under which the gateway keeps the stream; None = it does not keep it, or has not answered yet.
        after: the number of the last record that the reader has; -1 = none.
        over: whether no record follows, or the stream was stopped.
    """

    keep: str | None = None
    stream: str | None = None
    after: int = -1
    over: bool = False

    @classmethod
    def of(cls, keep: float | str | None) -> Self:
        """The beginning of a stream that is to be kept for that time, in seconds or as in the field `keep`.

        Raises:
            BadRequest: it is not a time.
        """
        text = f"{keep:.0f}s" if isinstance(keep, float | int) else keep
        if not (text is None or _PERIOD.fullmatch(text)):
            raise BadRequest("keep= must be seconds, or a text such as 90s, 10m or 2h")
        return cls(text)

    @property
    def goes_on(self) -> bool:
        """Whether another connection can resume the stream from here."""
        return self.stream is not None and not self.over

    def begin(self, stream: str | None = None) -> None:
        """Reset it to the beginning of a stream, which the gateway keeps under this id."""
        self.stream, self.after, self.over = stream, -1, False
