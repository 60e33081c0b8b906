"""Events -> caller: a whole dialog, or the part of it that has arrived."""

import msgspec

from tg_client.agent_event import Action, AgentEvent, Answer, EventReader, Observation, Thought
from tg_schema import AgentResponse, AgentStep, FinishReason, encode
from tg_schema.errors import TooLarge

MAX_TRACE_BYTES = 64 * 1024 * 1024
"""Largest recorded dialog in bytes: ten iterations, each with an answer of the largest size."""

_PIECE_BYTES = 64


class AgentTrace(msgspec.Struct, frozen=True):
    """A dialog. Token counts are totals of all its model calls, and None if the provider reported none."""

    messages: tuple[AgentEvent, ...] = ()
    """Each message as one event, in the order in which they began."""
    in_token: int | None = None
    out_token: int | None = None
    model: str | None = None
    finish_reason: FinishReason | None = None
    """How the model ended its answer: "stop", or "length" if the answer is truncated; None = unknown."""

    @property
    def answer(self) -> str:
        """The answer; empty until the dialog has ended."""
        return next((event.content for event in self.messages if isinstance(event, Answer) and event.final), "")

    @property
    def steps(self) -> tuple[AgentStep, ...]:
        """The tool calls of the agent that was asked; another question can continue from them (`history`).

        An answer that was withdrawn before a call is the thought that led to the call.
        """
        steps: list[AgentStep] = []
        unseen: list[tuple[str | None, int]] = []
        thought: str | None = None
        for event in self.messages:
            if event.path:
                continue
            if isinstance(event, Thought | Answer):
                thought = event.content if thought is None else f"{thought}\n{event.content}"
            elif isinstance(event, Action):
                unseen.append((event.call_id, len(steps)))
                steps.append(AgentStep(thought, event.tool, _texts(event.arguments)))
                thought = None
            elif isinstance(event, Observation) and (calls := [call for call in unseen if call[0] == event.call_id]):
                # Calls of older processors have no ids: an observation belongs to the first call that has none yet.
                unseen.remove(calls[0])
                step = calls[0][1]
                steps[step] = msgspec.structs.replace(steps[step], observation=event.content)
        return tuple(steps)


class TraceWriter(msgspec.Struct):
    """Records a dialog, one record at a time."""

    _newest: list[AgentEvent] = msgspec.field(default_factory=list)
    _texts: list[list[str]] = msgspec.field(default_factory=list)
    _open: dict[tuple[str | None, type[AgentEvent]], int] = msgspec.field(default_factory=dict)
    _last: AgentResponse | None = None
    _left: int = MAX_TRACE_BYTES
    _reader: EventReader = msgspec.field(default_factory=EventReader)

    def take(self, record: AgentResponse) -> AgentEvent | None:
        """Add a record; returns the event that it completes.

        Raises:
            TooLarge: the dialog has more than `MAX_TRACE_BYTES`.
        """
        self._left -= len(record.content or "") + len(record.arguments or "") + _PIECE_BYTES
        if self._left < 0:
            raise TooLarge(f"the dialog is larger than {MAX_TRACE_BYTES} bytes; ask a smaller question")
        if record.last:
            self._last = record
        event = self._reader.take(record)
        if event is None:
            return None
        key = event.message_id, type(event)
        place = self._open.get(key)
        if place is None:
            place = self._open[key] = len(self._newest)
            self._newest.append(event)
            self._texts.append([])
        self._newest[place] = event
        self._texts[place].append(event.content)
        if event.complete:
            del self._open[key]
        return event

    @property
    def trace(self) -> AgentTrace:
        """The dialog so far. A message that has not ended is not `complete`."""
        messages = tuple(
            msgspec.structs.replace(event, content="".join(texts))
            for event, texts in zip(self._newest, self._texts, strict=True)
        )
        last = self._last or AgentResponse()
        return AgentTrace(messages, last.in_token, last.out_token, last.model, last.finish_reason)


def _texts(arguments: object) -> dict[str, str]:
    """The arguments of a step: texts as they are, everything else as JSON."""
    if not isinstance(arguments, dict):
        return {}
    return {name: value if isinstance(value, str) else encode(value).decode() for name, value in arguments.items()}
