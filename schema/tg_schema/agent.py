"""Agent: a question in, thoughts, actions, observations and an answer out (seed, phase 4)."""

from collections.abc import Sequence
from typing import Literal, Self

import msgspec

from tg_schema.errors import Error

ChunkType = Literal["thought", "action", "observation", "answer", "error"]


class AgentStep(msgspec.Struct, frozen=True):
    """One finished round of an agent's reasoning (seed)."""

    thought: str | None = None
    action: str | None = None
    arguments: dict[str, str] | None = None
    observation: str | None = None
    user: str | None = None


class AgentRequest(msgspec.Struct, frozen=True):
    """Seed: `question`, `state`, `group`, `history`, `user`, `streaming`."""

    question: str | None = None
    state: str | None = None
    group: tuple[str, ...] | None = None
    history: tuple[AgentStep, ...] | None = None
    user: str | None = None
    streaming: bool | None = False


class AgentResponse(msgspec.Struct, frozen=True):
    """Seed: what kind of content, the content, and the two ends. `error` is set where `chunk_type` is "error"."""

    chunk_type: ChunkType | None = None
    content: str | None = None
    end_of_message: bool | None = False
    end_of_dialog: bool | None = False
    error: Error | None = None

    @property
    def last(self) -> bool:
        """Whether the dialog ends here."""
        return bool(self.end_of_dialog) or self.error is not None

    @classmethod
    def failed(cls, error: Error) -> Self:
        """The last record of a failed dialog."""
        return cls(chunk_type="error", content=error.message, end_of_message=True, end_of_dialog=True, error=error)

    @classmethod
    def joined(cls, records: Sequence[Self]) -> Sequence[Self]:
        """Neighbours of the same message become one record; messages stay apart."""
        joined: list[Self] = []
        for record in records:
            if joined and not joined[-1].end_of_message and joined[-1].chunk_type == record.chunk_type:
                content = (joined[-1].content or "") + (record.content or "")
                joined[-1] = msgspec.structs.replace(record, content=content)
            else:
                joined.append(record)
        return joined
