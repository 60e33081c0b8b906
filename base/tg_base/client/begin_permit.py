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
            False.

    Attributes:
        granted: whether a processor may begin.
        sent: the attempt whose processor was sent the whole body; 0 = none. No other attempt can begin.
        begun: whether a processor may have begun. From then on no other is asked, since both would be billed.
        works: whether that processor has reported since that it works.
    """

    __slots__ = ("_check", "_turn", "begun", "granted", "sent", "works")

    def __init__(self, check: Callable[[], Awaitable[bool]]) -> None:
        self._check = check
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
