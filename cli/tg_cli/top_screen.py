"""Documents of gateways -> terminal: the screen of `tg-top`. It imports textual, so import this file late."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option
from typing_extensions import override

from tg_cli.live_table import write_figures, write_streams
from tg_cli.terminal_text import remove_controls
from tg_client import TgClient
from tg_schema import TgError
from tg_schema.live import LiveDocument

RETRY_SECONDS = 2.0
"""Seconds after which a gateway that failed is asked again."""


class TopScreen(App[bool]):
    """The screen; it returns whether Ctrl-C ended it.

    Args:
        clients: one for each gateway.
        documents: the first document of each, numbered from 1 on.
    """

    CSS = """
    #figures { height: 1fr; }
    #head { height: auto; }
    #streams { height: 1fr; border: none; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "leave(False)", "Quit"),
        ("k", "stop", "Stop the stream"),
        ("ctrl+c", "leave(True)", "Interrupt"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, clients: Sequence[TgClient], documents: Mapping[int, LiveDocument]) -> None:
        super().__init__()
        self._clients, self._documents = dict(zip(documents, clients, strict=True)), dict(documents)
        self._streams: list[tuple[int, str]] = []

    @override
    def compose(self) -> ComposeResult:
        yield VerticalScroll(Static(id="lines"), id="figures")
        yield Static(id="head")
        yield OptionList(id="streams", compact=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begin."""
        self.query_one(OptionList).focus()
        self._draw()
        for place in self._clients:
            self.run_worker(self._follow(place))

    async def _follow(self, place: int) -> None:
        while True:
            try:
                async with self._clients[place].follow_live() as documents:
                    async for document in documents:
                        self._documents[place] = document
                        self._draw()
            except TgError as error:
                # Prefer the document of another gateway on the same bus to the last one of this gateway.
                self._documents[place] = self._documents.pop(place)
                self.notify(remove_controls(error.message), severity="error", timeout=RETRY_SECONDS, markup=False)
            await asyncio.sleep(RETRY_SECONDS)

    def _draw(self) -> None:
        head, streams = write_streams(self._documents)
        self.query_one("#lines", Static).update(_plain("\n".join(write_figures(self._documents))))
        self.query_one("#head", Static).update(_plain("\n".join(head)))
        listed, places = self.query_one(OptionList), list(streams)
        if places == self._streams:
            for number, line in enumerate(streams.values()):
                listed.replace_option_prompt_at_index(number, _plain(line))
            return
        at = listed.highlighted
        chosen = self._streams[at] if at is not None else None
        shown, self._streams = listed.scroll_offset.y, places
        listed.set_options([Option(_plain(line)) for line in streams.values()])
        listed.scroll_to(y=shown, animate=False)
        # Do not select the stream that has moved to this place: the next key might stop it.
        listed.highlighted = places.index(chosen) if chosen in places else None

    def action_leave(self, interrupted: bool) -> None:
        """End it."""
        self.exit(interrupted)

    async def action_stop(self) -> None:
        """Stop the stream at the cursor."""
        at = self.query_one(OptionList).highlighted
        if at is None:
            return
        place, stream = self._streams[at]
        try:
            await self._clients[place].stop_stream(stream)
        except TgError as error:
            self.notify(remove_controls(error.message), severity="warning", markup=False)
        else:
            self.notify(f"stopped {stream}", markup=False)


def _plain(line: str) -> Text:
    """A line that may hold other people's names: neither the terminal nor the markup interprets them."""
    return Text(remove_controls(line), no_wrap=True, overflow="crop")
