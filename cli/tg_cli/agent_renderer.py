"""Agent's dialog -> terminal: its events, one message after the other."""

from collections.abc import AsyncIterator, Iterator

from tg_cli.agent_screen import AgentScreen
from tg_cli.output import Output
from tg_client import AgentEvent
from tg_client.agent_event import EventReader
from tg_schema import AgentResponse, TgError

Key = tuple[str | None, type[AgentEvent]]


class MessageOrder:
    """Passes one message on as it arrives. The others wait for its end, in the order in which they began."""

    def __init__(self) -> None:
        self._live: Key | None = None
        self._waiting: dict[Key, list[AgentEvent]] = {}

    def take(self, event: AgentEvent) -> Iterator[AgentEvent]:
        """The events that can be shown now that this one has arrived."""
        key = event.message_id, type(event)
        if self._live not in {None, key}:
            self._waiting.setdefault(key, []).append(event)
            return
        yield event
        self._live = None if event.complete else key
        while self._live is None and self._waiting:
            key = next(iter(self._waiting))
            yield from self._through(key)

    def rest(self) -> Iterator[AgentEvent]:
        """The waiting events, at the end."""
        while self._waiting:
            yield from self._through(next(iter(self._waiting)))

    def _through(self, key: Key) -> Iterator[AgentEvent]:
        events = self._waiting.pop(key)
        yield from events
        self._live = None if events[-1].complete else key


async def write_dialog(records: AsyncIterator[AgentResponse], output: Output, *, verbose: bool) -> AgentResponse | None:
    """Write the answer to `output` and the steps to stderr, unshortened if `verbose`; returns the last record."""
    screen, order, record = AgentScreen(output, verbose=verbose), MessageOrder(), None
    reader = EventReader()
    try:
        async for record in records:
            event = reader.take(record)
            for shown in order.take(event) if event is not None else ():
                await screen.show(shown)
    except TgError:
        # Show the received part before the error.
        await _finish(screen, order)
        raise
    await _finish(screen, order)
    return record


async def _finish(screen: AgentScreen, order: MessageOrder) -> None:
    for shown in order.rest():
        await screen.show(shown)
    await screen.end()
