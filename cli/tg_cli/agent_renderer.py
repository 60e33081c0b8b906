"""Agent's dialog -> terminal, or one JSON object per line."""

from collections.abc import AsyncIterator, Iterator

from tg_cli.agent_screen import AgentScreen
from tg_cli.invoke_options import InvokeOptions
from tg_cli.output import Output
from tg_cli.renderer import print_end, record_line
from tg_client import AgentEvent
from tg_client.agent_event import EventReader
from tg_schema import AgentResponse, TgError

Key = tuple[str | None, type[AgentEvent]]


class MessageOrder:
    """Passes one message on as it comes; others wait for its end, in the order of their beginnings."""

    def __init__(self) -> None:
        self._live: Key | None = None
        self._waiting: dict[Key, list[AgentEvent]] = {}

    def take(self, event: AgentEvent) -> Iterator[AgentEvent]:
        """The events that can be shown after this one."""
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


class AgentRenderer:
    """See `Renderer`.

    Args:
        ask: how to show the answer.
        verbose: show everything.
    """

    def __init__(self, ask: InvokeOptions, *, verbose: bool) -> None:
        self._ask = ask
        self._verbose = verbose

    async def show(self, records: AsyncIterator[AgentResponse]) -> None:
        """See `Renderer`."""
        async with Output() as output:
            last = await (self._lines(records, output) if self._ask.json else self._dialog(records, output))
        if last is not None:
            print_end(last, show_usage=self._ask.show_usage)

    async def _lines(self, records: AsyncIterator[AgentResponse], output: Output) -> AgentResponse | None:
        record = None
        async for record in records:
            await output.json(record_line(record))
        return record

    async def _dialog(self, records: AsyncIterator[AgentResponse], output: Output) -> AgentResponse | None:
        screen, order, record = AgentScreen(output, verbose=self._verbose), MessageOrder(), None
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
