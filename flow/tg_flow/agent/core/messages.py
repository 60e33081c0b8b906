"""Loop -> requestor: a dialog's records, with the ids and flags of their messages."""

from tg_base.telemetry import new_id
from tg_schema import AgentResponse
from tg_schema.agent import ChunkType
from tg_schema.deltas import add_count


class Usage:
    """Tokens and the model; None = unknown, 0 = counted zero."""

    def __init__(self) -> None:
        self.in_token: int | None = None
        self.out_token: int | None = None
        self.model: str | None = None

    @property
    def total(self) -> int:
        """All known tokens."""
        return (self.in_token or 0) + (self.out_token or 0)

    def add(self, in_token: int | None, out_token: int | None, model: str | None = None) -> None:
        """Add the tokens of a record. The first model named is the dialog's."""
        self.in_token = add_count(self.in_token, in_token)
        self.out_token = add_count(self.out_token, out_token)
        self.model = self.model or model


class Messages:
    """The messages of one dialog. Text continues the open message until that is closed or the kind changes."""

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

    def finish(self, usage: Usage) -> AgentResponse:
        """The last record of the dialog, which ends the answer's message."""
        # An empty answer has not opened a message.
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
        """The id of a new message."""
        self._count += 1
        return f"{self._dialog}/{self._count}"
