"""Agent: a question in, thoughts, actions, observations and an answer out."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import msgspec

from tg_schema.completion import LATER_WORDS, FinishReason
from tg_schema.deltas import Count, join_text
from tg_schema.errors import Error
from tg_schema.many import Many
from tg_schema.pieces import cut_text, in_parts

ChunkType = Literal["thought", "action", "observation", "answer", "error"]
DEFAULT_GROUP = "default"
"""The group of tools of a request that names no group, and of a tool without a group."""
ALL_GROUPS = "*"
"""Stands for all groups, and for all states of a dialog."""


class AgentStep(msgspec.Struct, frozen=True):
    """One finished round of an agent's reasoning."""

    thought: str | None = None
    action: str | None = None
    arguments: dict[str, str] | None = None
    observation: str | None = None
    user: str | None = None


class AgentRequest(msgspec.Struct, frozen=True):
    """A question to an agent. A plain peer knows all fields but `pattern`.

    `history` holds previous rounds; the agent continues from there.
    """

    question: str | None = None
    state: str | None = None
    group: Many[str] | None = None
    history: Many[AgentStep] | None = None
    user: str | None = None
    streaming: bool | None = False
    pattern: str | None = None
    """How to reason: the name of a pattern; None = the flow's default."""


class AgentResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of a dialog. A plain peer knows the fields from `chunk_type` to `error`, which is set on an "error".

    A message is all records of one `message_id`; the messages of concurrent calls may alternate. The answer is the
    message that ends the dialog. A message of type "answer" that does not end it was withdrawn, because the model
    continued.

    The last record has the token counts of the whole dialog.
    """

    later_words: ClassVar = LATER_WORDS
    chunk_type: ChunkType | None = None
    content: str | None = None
    end_of_message: bool | None = False
    end_of_dialog: bool | None = False
    # Always on the wire, as in text completion.
    error: Error | None = msgspec.field(default_factory=type(None))
    message_id: str | None = None
    """Identifies the message; the same on each of its chunks."""
    path: tuple[str, ...] = ()
    """The sub-agents that this comes from, outermost first; empty = the agent that was asked."""
    tool: str | None = None
    """On an action and its observation: the tool's name."""
    arguments: str | None = None
    """On an action: the call's arguments as JSON text; cut into pieces like `content`."""
    call_id: str | None = None
    """On an action and its observation: identifies the call among concurrent ones."""
    in_token: Count | None = None
    out_token: Count | None = None
    model: str | None = None
    finish_reason: FinishReason | None = None
    """On the last record: why the model ended its answer, as in text completion; "length" = truncated."""

    @property
    def last(self) -> bool:
        """Whether the dialog ends here."""
        return bool(self.end_of_dialog) or self.error is not None

    @property
    def message(self) -> tuple[str | None, str | None]:
        """The key that all chunks of one message share."""
        return self.message_id, self.chunk_type

    @classmethod
    def from_error(cls, error: Error) -> Self:
        """The last record of a failed dialog."""
        return cls(chunk_type="error", content=error.message, end_of_message=True, end_of_dialog=True, error=error)

    @classmethod
    def join(cls, records: Sequence[Self]) -> Sequence[Self]:
        """Join adjacent records of the same message; messages stay apart."""
        joined: list[Self] = []
        for record in records:
            if joined and not joined[-1].end_of_message and joined[-1].message == record.message:
                content = (joined[-1].content or "") + (record.content or "")
                arguments = join_text((joined[-1].arguments, record.arguments))
                joined[-1] = msgspec.structs.replace(record, content=content, arguments=arguments)
            else:
                joined.append(record)
        return joined

    def cut(self, size: int) -> Sequence[Self]:
        """Pieces of the same message, first of its `content` and then of its `arguments`."""
        if self.error is not None:
            return (self,)
        parts = [{"content": piece} for piece in cut_text(self.content, size)]
        parts += [{"arguments": piece} for piece in cut_text(self.arguments, size)]
        cls = type(self)
        continuing = cls(
            self.chunk_type, "", message_id=self.message_id, path=self.path, tool=self.tool, call_id=self.call_id
        )
        return in_parts(self, continuing, parts)
