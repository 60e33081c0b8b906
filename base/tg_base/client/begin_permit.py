"""Requestor -> its caller -> processor: a request that no processor may begin before its caller allows it.

Such a request travels without its body, as a large one does. A processor of any version then asks for the body, next
for a confirmation, and begins only after that. The permit holds back this confirmation.
"""

import asyncio
from collections.abc import Awaitable, Callable


class BeginPermit:
    """The permit of one request, in all its attempts.

    Args:
        check: returns whether a processor may begin. Awaited before a processor gets the permission, and again after a
            False, or for another attempt.
        repeats: whether another processor may be asked after one that may have begun and was lost.

    Attributes:
        repeats: as given.
        granted: whether the processor of this attempt may begin.
        sent: the attempt whose processor was sent the whole body; 0 = none. No other attempt can begin.
        begun: whether a processor may have begun, unless it `repeats`. From then on no other is asked, since both would
            be billed.
        works: whether that processor has reported since that it works.
    """

    __slots__ = ("_check", "_turn", "begun", "granted", "repeats", "sent", "works")

    def __init__(self, check: Callable[[], Awaitable[bool]], *, repeats: bool = False) -> None:
        self._check = check
        self.repeats = repeats
        self._turn = asyncio.Lock()
        self.sent = 0
        self.granted = self.begun = self.works = False

    async def grant(self) -> bool:
        """Whether a processor may begin now. Concurrent calls share one check and its answer."""
        # A processor asks once a second, and a check may take longer: without sharing, checks would pile up.
        checked = self._turn.locked()
        async with self._turn:
            if not checked:
                self.granted = self.granted or await self._check()
        return self.granted
