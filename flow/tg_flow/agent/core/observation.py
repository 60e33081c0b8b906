"""Loop -> requestor: the records of one call's observation, and those of a sub-agent behind it."""

from tg_flow.agent.core.open_turn import OpenCall
from tg_flow.agent.core.tool_calls import CallEnded, CallFailed
from tg_schema import AgentResponse


class Observation:
    """The outcome of one call, as records; the call keeps the text for the model."""

    def __init__(self, call: OpenCall, message: str) -> None:
        self._call = call
        self._message = message
        self._open: dict[tuple[tuple[str, ...], str | None], AgentResponse] = {}

    def records(self, outcome: str | AgentResponse | CallFailed | CallEnded) -> list[AgentResponse]:
        """The records of one outcome. A message that a sub-agent leaves open ends with the call."""
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
