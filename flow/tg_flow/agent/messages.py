"""Loop -> requestor: a dialog's records, each with its message's id and flags."""

import uuid

from tg_flow.agent.usage import Usage
from tg_schema.agent import AgentResponse, ChunkType


class Messages:
    """The messages of one dialog. Prose goes on in the same message until it is closed or changes its kind."""

    def __init__(self) -> None:
        self._dialog = uuid.uuid4().hex
        self._count = 0
        self._open: tuple[ChunkType, str] | None = None

    def say(self, kind: ChunkType, text: str) -> list[AgentResponse]:
        """A piece of a thought or an answer."""
        if self._open is not None and self._open[0] == kind:
            return [AgentResponse(kind, text, message_id=self._open[1])]
        records = self.close()
        self._open = kind, self.next_id()
        records.append(AgentResponse(kind, text, message_id=self._open[1]))
        return records

    def close(self) -> list[AgentResponse]:
        """The message that is being said, if any, is complete."""
        if self._open is None:
            return []
        (kind, message), self._open = self._open, None
        return [AgentResponse(kind, "", end_of_message=True, message_id=message)]

    def finish(self, usage: Usage) -> AgentResponse:
        """The last record of the dialog: the answer that is being said is complete."""
        message = self.next_id() if self._open is None else self._open[1]
        return AgentResponse(
            "answer",
            "",
            end_of_message=True,
            end_of_dialog=True,
            message_id=message,
            in_token=usage.in_token,
            out_token=usage.out_token,
            model=usage.model,
        )

    def next_id(self) -> str:
        """The id of one more message."""
        self._count += 1
        return f"{self._dialog}/{self._count}"
