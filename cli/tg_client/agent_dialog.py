"""Question -> dialog, which begins when it is entered or iterated; records -> events of a running one."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from typing_extensions import override

from tg_client.agent_event import AgentEvent
from tg_client.agent_trace import AgentTrace, TraceWriter
from tg_client.record_stream import RecordStream
from tg_schema import AgentResponse
from tg_schema.errors import BadRequest


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


class AgentDialog(AbstractAsyncContextManager[AgentStream]):
    """One dialog, which begins when it is entered (`async with`) or iterated (`async for`).

    Leaving an `async with` stops model and tools at once. A `break` out of an `async for` stops them when the
    interpreter frees the iterator, which is at once unless something else holds it.

    Raises (when it is entered or iterated):
        TgError: the dialog failed; `trace` has the part before it.
        BadRequest: it was begun before; one call of `agent_stream` is one dialog.
    """

    def __init__(self, records: RecordStream[AgentResponse]) -> None:
        self.position = records.position
        self._records = records
        self._writer = TraceWriter()

    @property
    def trace(self) -> AgentTrace:
        """The dialog so far; after the last event, all of it, with its usage."""
        return self._writer.trace

    @override
    async def __aenter__(self) -> AgentStream:
        if self._records.entered:
            raise BadRequest("this dialog was begun before: call agent_stream again for another one")
        return AgentStream(await self._records.__aenter__(), self._writer)

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        return await self._records.__aexit__(kind, error, tb)

    async def __aiter__(self) -> AsyncGenerator[AgentEvent, None]:
        """The events. The stream is closed at its end, or when the iterator is closed."""
        async with self as events:
            async for event in events:
                yield event
