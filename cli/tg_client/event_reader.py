"""AgentResponses -> events: one for each record, and one for an action that comes in pieces."""

from tg_client.agent_event import AgentEvent, event_of
from tg_schema import AgentResponse

Key = tuple[tuple[str, ...], str | None]


class EventReader:
    """Takes the records of one dialog in order.

    A gateway cuts what is too long for one event of its streams. A peer that names no tool describes an action as text,
    whose pieces are separate events.
    """

    def __init__(self) -> None:
        self._actions: dict[Key, list[AgentResponse]] = {}

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
