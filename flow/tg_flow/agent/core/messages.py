"""Loop -> requestor: the records of a dialog, with the ids and flags of their messages."""

from tg_base.telemetry import new_id
from tg_schema import AgentResponse
from tg_schema.agent import ChunkType


class Messages:
    """The messages of one dialog. Text continues the open message until it is closed or the kind of text changes."""

    def __init__(self) -> None:
        self._dialog = new_id()
        self._count = 0
        self._open: tuple[ChunkType, str] | None = None
        self._aside: str | None = None

    @property
    def answering(self) -> bool:
        """Whether the open message is an answer."""
        return self._open is not None and self._open[0] == "answer"

    def add_text(self, kind: ChunkType, text: str) -> list[AgentResponse]:
        """A piece of a thought or an answer."""
        if self._open is not None and self._open[0] == kind:
            return [*self.end_aside(), AgentResponse(kind, text, message_id=self._open[1])]
        records = self.close()
        self._open = kind, self.next_id()
        records.append(AgentResponse(kind, text, message_id=self._open[1]))
        return records

    def think(self, text: str) -> list[AgentResponse]:
        """A piece of reasoning. An open answer continues after it."""
        if not self.answering:
            return self.add_text("thought", text)
        self._aside = self._aside or self.next_id()
        return [AgentResponse("thought", text, message_id=self._aside)]

    def end_aside(self) -> list[AgentResponse]:
        """End the reasoning beside an open answer, if there is any."""
        aside, self._aside = self._aside, None
        return [] if aside is None else [AgentResponse("thought", "", end_of_message=True, message_id=aside)]

    def close(self) -> list[AgentResponse]:
        """End the open message, if there is one."""
        records = self.end_aside()
        if self._open is not None:
            (kind, message), self._open = self._open, None
            records.append(AgentResponse(kind, "", end_of_message=True, message_id=message))
        return records

    def finish(self) -> AgentResponse:
        """The last record of the dialog, which ends the answer's message."""
        # An empty answer has not opened a message.
        message = self.next_id() if self._open is None else self._open[1]
        return AgentResponse("answer", "", end_of_message=True, end_of_dialog=True, message_id=message)

    def next_id(self) -> str:
        """The id of a new message."""
        self._count += 1
        return f"{self._dialog}/{self._count}"
