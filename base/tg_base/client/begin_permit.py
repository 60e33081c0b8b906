"""Requestor -> its caller -> processor: a request that nobody may begin before the caller has written that down.

Such a request travels without its body, as a large one does: a processor of any version asks for the body, then for a
confirmation, and begins after that. So the confirmation behind the body is what the permit stands before.
"""

import asyncio
from collections.abc import Awaitable, Callable


class BeginPermit:
    """The permit of one request, in all its attempts.

    Args:
        check: whether a processor may begin. Awaited before one is told so, and again after a No.

    Attributes:
        granted: whether one may.
        sent: the attempt whose processor was sent the whole body; 0 = none. Another one cannot begin.
        begun: whether one may have begun. From then on no other one is asked: it would be paid twice.
        works: whether it has said since then that it works.
    """

    __slots__ = ("_check", "_turn", "begun", "granted", "sent", "works")

    def __init__(self, check: Callable[[], Awaitable[bool]]) -> None:
        self._check = check
        self._turn = asyncio.Lock()
        self.sent = 0
        self.granted = self.begun = self.works = False

    async def grant(self) -> bool:
        """Whether a processor may begin now. Who asks while that is checked gets the same answer."""
        # A processor asks once a second, and a check may take longer: those behind it would become more and more.
        checked = self._turn.locked()
        async with self._turn:
            if not checked:
                self.granted = self.granted or await self._check()
        return self.granted
