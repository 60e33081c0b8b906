"""Records -> events: a running dialog."""

from collections.abc import AsyncIterator
from typing import Self

from typing_extensions import override

from tg_client.agent_event import AgentEvent
from tg_client.agent_trace import AgentTrace, TraceWriter
from tg_schema import AgentResponse


class AgentStream(AsyncIterator[AgentEvent]):
    """Iterate to read the events. A reader that is slower than the agent gets fewer and larger ones.

    Raises (while iterating):
        TgError: the dialog failed; `trace` has the part before it.
    """

    def __init__(self, records: AsyncIterator[AgentResponse], writer: TraceWriter) -> None:
        self._records = records
        self._writer = writer

    @property
    def trace(self) -> AgentTrace:
        """The dialog so far; after the last event, all of it, with its usage."""
        return self._writer.trace

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> AgentEvent:
        async for record in self._records:
            event = self._writer.take(record)
            if event is not None:
                return event
        raise StopAsyncIteration
