"""Agent's dialog -> terminal, or one JSON object per line."""

from collections.abc import AsyncIterator

from tg_cli.agent_screen import AgentScreen
from tg_cli.invoke_options import InvokeOptions
from tg_cli.message_order import MessageOrder
from tg_cli.output import Output
from tg_cli.renderer import print_end, record_line
from tg_client.event_reader import EventReader
from tg_schema import AgentResponse, TgError


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
            # What has come is shown before the error's sentence.
            await _finish(screen, order)
            raise
        await _finish(screen, order)
        return record


async def _finish(screen: AgentScreen, order: MessageOrder) -> None:
    for shown in order.rest():
        await screen.show(shown)
    await screen.end()
