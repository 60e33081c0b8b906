"""Model -> loop: the current turn of the model: its text in order, its calls, and the results of the calls."""

from dataclasses import dataclass, field

from tg_flow.agent.core.tool_calls import CallEnded, CallFailed
from tg_flow.agent.core.turn import Result, Turn
from tg_flow.agent.parsing import InvalidCall, Kind, ParsedCall
from tg_schema import AgentResponse
from tg_schema.conversation import ReasoningPart

NO_STEP = "This leads nowhere. Call a tool in the form that you were told, or give the final answer."

CUT = "Your text was cut at the limit of tokens before there was a call or an answer in it. Be brief."


@dataclass(slots=True)
class OpenCall:
    """One call of the turn.

    Attributes:
        id: the call's id in this dialog.
        event: the call as the model made it.
        fault: why the call cannot be made, as a sentence for the model; None = it can be made.
        pieces: the pieces of its observation so far.
        failed: whether the call was made and failed.
    """

    id: str
    event: ParsedCall | InvalidCall
    fault: str | None = None
    pieces: list[str] = field(default_factory=list)
    failed: bool = False

    @property
    def tool(self) -> str:
        """The tool's name; "" if the model gave none."""
        return self.event.tool or ""

    @property
    def result(self) -> Result:
        """The result in the form that the model gets."""
        failed = self.failed or self.fault is not None
        event = self.event
        return Result(self.tool, event.arguments, "".join(self.pieces), failed, event.id, event.signature)


class Observation:
    """The outcome of one call, as records. The text for the model is added to the call."""

    def __init__(self, call: OpenCall, message: str) -> None:
        self._call = call
        self._message = message
        self._open: dict[tuple[tuple[str, ...], str | None], AgentResponse] = {}

    def records(self, outcome: str | AgentResponse | CallFailed | CallEnded) -> list[AgentResponse]:
        """The records of one outcome. If a sub-agent leaves a message open, it ends with the call."""
        match outcome:
            case AgentResponse(path=path, message_id=message):
                self._open[path, message] = outcome
                if outcome.end_of_message:
                    del self._open[path, message]
                return [outcome]
            case CallEnded():
                ends = [
                    AgentResponse(
                        one.chunk_type,
                        "",
                        end_of_message=True,
                        message_id=one.message_id,
                        path=one.path,
                        tool=one.tool,
                        call_id=one.call_id,
                    )
                    for one in self._open.values()
                ]
                return [*ends, make_observation(self._call, self._message, "", end=True)]
            case CallFailed(reason):
                self._call.failed = True
                return [self._piece(f"\nerror: {reason}" if self._call.pieces else f"error: {reason}")]
            case str(text):
                return [self._piece(text)]

    def _piece(self, text: str) -> AgentResponse:
        self._call.pieces.append(text)
        return make_observation(self._call, self._message, text)


def make_observation(call: OpenCall, message: str, text: str, *, end: bool = False) -> AgentResponse:
    """One record of an observation."""
    return AgentResponse("observation", text, end_of_message=end, message_id=message, tool=call.tool, call_id=call.id)


class OpenTurn:
    """Collects the text and the calls of one turn.

    Attributes:
        calls: the calls of the turn.
        reasoning: whether the latest text is reasoning that the provider sends separately.
        cut: whether the model has reached its token limit in this turn.
        thinking: reasoning that the provider wants back.
    """

    def __init__(self) -> None:
        self.cut = False
        self.calls: list[OpenCall] = []
        self.reasoning = False
        self.thinking: tuple[ReasoningPart, ...] = ()
        self._sections: list[tuple[Kind, list[str]]] = []
        self._closed = True

    def add_text(self, kind: Kind, text: str) -> None:
        """Add a piece of text."""
        if self._closed or self._sections[-1][0] != kind:
            self._sections.append((kind, []))
            self._closed = False
        self._sections[-1][1].append(text)

    def close(self) -> None:
        """End the current message."""
        self._closed = True

    @property
    def answer(self) -> str | None:
        """The answer, if the turn ends with one: it has text and no call."""
        if self.calls or not self._sections or self._sections[-1][0] != "answer":
            return None
        return "".join(self._sections[-1][1]) if any(piece.strip() for piece in self._sections[-1][1]) else None

    @property
    def faulty(self) -> bool:
        """Whether the model made an error in this turn and must be told so."""
        return not self.calls or any(call.fault is not None for call in self.calls)

    @property
    def thought(self) -> str:
        """The whole text of the turn."""
        return "\n".join("".join(pieces) for _, pieces in self._sections)

    @property
    def turn(self) -> Turn:
        """The finished turn."""
        # A turn without calls had no answer either: an answer would have ended the dialog.
        fault = CUT if self.cut else NO_STEP
        results = tuple(call.result for call in self.calls)
        return Turn(self.thought, results, None if self.calls else fault, self.thinking)
