"""A function that returns what is read -> a body that needs no closing, as `event_chunks` reads one."""

from typing import Self

from tg_base.llm.http import Read, Take


class ReadBody:
    """It cannot tell whether it has ended, and passes nothing on to a listener."""

    ended = False

    def __init__(self, read: Read) -> None:
        self.read = read

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def listen(self, take: Take) -> None:
        pass
