"""Records of an answer -> terminal or pipe: the interface, and text as it is."""

import os
import sys
from collections.abc import AsyncIterator
from typing import Protocol

from tg_cli.endings import notify
from tg_cli.output import Output
from tg_schema import TextCompletionResponse


class ChatScreen(Protocol):
    """Shows one answer after the other."""

    async def show(self, records: AsyncIterator[TextCompletionResponse]) -> None:
        """Show an answer as it comes. The shown part stays when the answer fails or is stopped."""

    def tell(self, sentence: str) -> None:
        """Tell the user something while an answer is waited for."""


class PlainScreen:
    """See `ChatScreen`. The text as it is, and a line break at its end."""

    tell = staticmethod(notify)

    async def show(self, records: AsyncIterator[TextCompletionResponse]) -> None:
        """See `ChatScreen`."""
        async with Output() as output:
            async for record in records:
                await output.text(record.response or "")


def make_screen() -> ChatScreen:
    """Markdown on a terminal that can draw, plain text elsewhere."""
    if sys.stdout is None or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in {"dumb", "unknown"}:
        return PlainScreen()
    # Plain text is written as UTF-8 in any locale; what draws Markdown fails at a spinner that the locale lacks.
    if sys.stdout.encoding.lower() != "utf-8":
        return PlainScreen()
    from tg_cli.markdown_screen import MarkdownScreen

    return MarkdownScreen()
