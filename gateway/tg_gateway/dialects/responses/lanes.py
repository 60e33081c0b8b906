"""Requests of one `stream_id` -> one after the other, in the order in which they came."""

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field

from tg_gateway.dialects.responses.writers import FrameWriter


@dataclass(slots=True, eq=False)
class Turn:
    """The turn of one request.

    Attributes:
        lane: the request's `stream_id`; None = it has none.
        come: set once the requests before it have ended.
        writer: the writer of its answer, once it has begun.
    """

    lane: str | None
    come: asyncio.Event = field(default_factory=asyncio.Event)
    writer: FrameWriter | None = None


class Lanes:
    """The turns of one socket that have not ended. The socket bounds them, as its requests."""

    def __init__(self) -> None:
        self._turns: defaultdict[str | None, deque[Turn]] = defaultdict(deque)

    def enter(self, lane: str | None) -> Turn:
        """The turn of one more request, after the waiting ones."""
        turns, turn = self._turns[lane], Turn(lane)
        turns.append(turn)
        turns[0].come.set()
        return turn

    def leave(self, turn: Turn) -> None:
        """A request has ended, or will never begin."""
        turns = self._turns[turn.lane]
        # The writer refers to its turn: a cycle that would keep both and the socket in memory.
        turn.writer = None
        if turn in turns:
            turns.remove(turn)
        if turns:
            turns[0].come.set()
        else:
            del self._turns[turn.lane]

    def find_first(self, lane: str | None) -> Turn | None:
        """The turn of a lane that is due; None = there is none."""
        return self._turns[lane][0] if lane in self._turns else None
