"""Requestor -> its caller -> processor: a request that nobody may begin before the caller has written that down.

Such a request travels without its body, as a large one does: a processor of any version asks for the body, then for a
confirmation, and begins after that. So the confirmation is what the permit stands before.
"""

from collections.abc import Awaitable, Callable


class BeginPermit:
    """The permit of one request, in all its attempts.

    Args:
        check: whether a processor may begin. Awaited before one is told so, and again at its next question after a No.

    Attributes:
        granted: whether one may.
        begun: whether one may have begun. From then on no other one is asked: it would be paid twice.
        works: whether it has said since then that it works.
    """

    __slots__ = ("_check", "_checking", "begun", "granted", "works")

    def __init__(self, check: Callable[[], Awaitable[bool]]) -> None:
        self._check = check
        self._checking = False
        self.granted = self.begun = self.works = False

    async def grant(self) -> bool:
        """Whether a processor may begin now; False too while the caller is still asked."""
        if not self.granted and not self._checking:
            self._checking = True
            try:
                self.granted = await self._check()
            finally:
                self._checking = False
        return self.granted
