"""The log of a kept answer at the edge of a test: its parts come as the test gives them."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from typing_extensions import override

from tg_gateway.dialects import KeptAnswer, KeptAnswers, Outcome
from tg_schema import TgError
from tg_schema.errors import NotFound


@dataclass
class KeptLog(KeptAnswers):
    """Attributes:
    head: of the answer that has the name now.
    end: an error: the log cannot be read to its end.
    left: whether a reader has left.
    """

    head: bytes | None
    parts: list[bytes]
    end: KeptAnswer | TgError
    outcome: Outcome = "running"
    left: bool = False

    @override
    async def read(self, name: str) -> KeptAnswer:
        return KeptAnswer(self.head, b"", self.outcome, cut=False)

    @override
    async def follow(self, name: str, head: bytes | None = None) -> AsyncGenerator[bytes | KeptAnswer, None]:
        if head not in {None, self.head}:
            raise NotFound("another answer")
        try:
            for part in self.parts:
                yield part
            if isinstance(self.end, TgError):
                raise self.end
            yield self.end
        finally:
            self.left = True
