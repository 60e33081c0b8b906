"""Records of a kept stream -> the text to show for each, and when to show it: at the pace of its arrival."""

import math

import msgspec

from tg_schema.agent import ChunkType
from tg_schema.errors import Error


class Recorded(msgspec.Struct, frozen=True):
    """One record of any service; its other fields are its service's.

    Attributes:
        at: when it arrived, in seconds since 1970; the first record of each part that was stored has this field.
    """

    at: float | None = None
    error: Error | None = None
    response: str | None = None
    text: str | None = None
    content: str | None = None
    chunk_type: ChunkType | None = None

    @property
    def shown(self) -> str:
        """What the record shows its reader: the text of an answer, but no thoughts, calls or observations."""
        content = self.content if self.chunk_type == "answer" else None
        return self.response or self.text or content or ""


class Pace:
    """How long to wait before each record of a stream.

    Args:
        speed: the factor by which the replay is faster than the original: "1", "10" or another number, or "max".
    """

    def __init__(self, speed: str | float) -> None:
        self._speed = math.inf if speed == "max" else float(speed)
        self._last: float | None = None

    def pause(self, at: float | None) -> float:
        """Seconds before the record of this `at`."""
        if at is None:
            return 0.0
        # The clocks of two processes that made one stream may differ a little.
        past, self._last = 0.0 if self._last is None else max(at - self._last, 0.0), at
        return past / self._speed
