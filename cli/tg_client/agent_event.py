"""AgentResponse -> caller: the pieces of an agent's dialog, each of its own type."""

from typing import Any

import msgspec

from tg_schema import AgentResponse


class Thought(msgspec.Struct, frozen=True):
    """The model reasons. A message comes in pieces, which have its `message_id` in common.

    Attributes:
        content: the new text; a whole message in an `AgentTrace`.
        message_id: the same for every piece of one message.
        path: which sub-agents, from the outermost in, this comes from; empty = the agent that was asked.
        complete: whether the message ends here.
    """

    content: str
    message_id: str | None = None
    path: tuple[str, ...] = ()
    complete: bool = True


class Action(msgspec.Struct, frozen=True):
    """A tool is called; always whole.

    Attributes:
        tool: the tool's name.
        arguments: decoded JSON; text that is none, as it is.
        call_id: which call, where several run side by side.
    """

    content: str
    message_id: str | None = None
    path: tuple[str, ...] = ()
    complete: bool = True
    tool: str = ""
    arguments: Any = None
    call_id: str | None = None


class Observation(msgspec.Struct, frozen=True):
    """What a tool gives, be it an error; in pieces where the tool streams. `tool` and `call_id` as in its `Action`."""

    content: str
    message_id: str | None = None
    path: tuple[str, ...] = ()
    complete: bool = True
    tool: str = ""
    call_id: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """The answer, of the agent that was asked where `path` is empty, else of a sub-agent.

    Attributes:
        final: whether the dialog ends with this. An answer that is complete without it was withdrawn, since the model
            went on.
        finish_reason: on the last piece of the final answer: "stop", "length" (the answer is cut) or another word of
            the provider's; None = unknown.
    """

    content: str
    message_id: str | None = None
    path: tuple[str, ...] = ()
    complete: bool = True
    final: bool = False
    finish_reason: str | None = None


AgentEvent = Thought | Action | Observation | Answer


def event_of(record: AgentResponse) -> AgentEvent | None:
    """The event that a record is; None where it is none, but a note of another kind of peer."""
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
