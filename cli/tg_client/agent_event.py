"""AgentResponse -> caller: the pieces of an agent's dialog, each of its own type."""

from typing import Any

import msgspec

from tg_schema import AgentResponse, FinishReason


class Piece(msgspec.Struct, frozen=True):
    """What all events have. The pieces of a message share its `message_id`.

    Attributes:
        content: the new text; a whole message in an `AgentTrace`.
        message_id: the same for every piece of one message.
        path: the sub-agents that this comes from, outermost first; empty = the agent that was asked.
        complete: whether the message ends here.
    """

    content: str
    message_id: str | None = None
    path: tuple[str, ...] = ()
    complete: bool = True


class Thought(Piece, frozen=True):
    """Reasoning of the model."""


class Action(Piece, frozen=True):
    """A tool call; always whole.

    Attributes:
        tool: the tool's name.
        arguments: decoded JSON; invalid JSON as text.
        call_id: identifies the call among concurrent ones.
    """

    tool: str = ""
    arguments: Any = None
    call_id: str | None = None


class Observation(Piece, frozen=True):
    """The result of a tool, or its error; in pieces if the tool streams. `tool` and `call_id` as in its `Action`."""

    tool: str = ""
    call_id: str | None = None


class Answer(Piece, frozen=True):
    """The answer; of the agent that was asked if `path` is empty, else of a sub-agent.

    Attributes:
        final: whether the dialog ends with this. A complete answer that is not final was withdrawn, because the model
            went on.
        finish_reason: on the last piece of the final answer: "stop", "length" (the answer is truncated) or another
            value of the provider; None = unknown.
    """

    final: bool = False
    finish_reason: FinishReason | None = None


AgentEvent = Thought | Action | Observation | Answer


def event_of(record: AgentResponse) -> AgentEvent | None:
    """The event of a record; None for a record without one, such as a note of another implementation."""
    content, message, path, complete = record.content or "", record.message_id, record.path, bool(record.end_of_message)
    match record.chunk_type:
        case "thought":
            return Thought(content, message, path, complete)
        case "action":
            tool = record.tool or content
            return Action(content, message, path, complete, tool, _decode(record.arguments), record.call_id)
        case "observation":
            return Observation(content, message, path, complete, record.tool or "", record.call_id)
        case "answer":
            # Another implementation may end the dialog without ending its message.
            return Answer(content, message, path, complete or record.last, record.last, record.finish_reason)
        case _:
            return None


def _decode(arguments: str | None) -> Any:
    if not arguments:
        return {}
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments


_Key = tuple[tuple[str, ...], str | None]


class EventReader:
    """Takes the records of one dialog in order, and joins the pieces of a tool call.

    A gateway splits an action that is too long for one event of its stream. An action without a tool's name is text of
    another implementation; each of its pieces is an event of its own.
    """

    def __init__(self) -> None:
        self._actions: dict[_Key, list[AgentResponse]] = {}

    def take(self, record: AgentResponse) -> AgentEvent | None:
        """The event that a record completes; None for a record without one, or a piece of an action."""
        if record.chunk_type != "action" or not record.tool:
            return event_of(record)
        key = record.path, record.message_id
        pieces = self._actions.setdefault(key, [])
        pieces.append(record)
        if not record.end_of_message:
            return None
        (whole,) = AgentResponse.join(self._actions.pop(key))
        return event_of(whole)
