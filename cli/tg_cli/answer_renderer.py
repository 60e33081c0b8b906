"""Completions and prompts -> stdout: their text as it comes, or one JSON object per line."""

from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from tg_cli.invoke_options import InvokeOptions
from tg_cli.output import Output
from tg_cli.renderer import print_end, record_line
from tg_schema import PromptResponse, TextCompletionResponse

Record = TypeVar("Record", TextCompletionResponse, PromptResponse)


class AnswerRenderer(Generic[Record]):
    """See `Renderer`.

    Args:
        ask: how to show the answer.
        text: the text of a record that is shown.
    """

    def __init__(self, ask: InvokeOptions, text: Callable[[Record], str | None]) -> None:
        self._ask = ask
        self._text: Callable[[Record], str | None] = text

    async def show(self, records: AsyncIterator[Record]) -> None:
        """See `Renderer`."""
        record = None
        async with Output() as output:
            async for record in records:
                if self._ask.json:
                    await output.json(record_line(record))
                else:
                    await output.text(self._text(record) or "")
        if record is not None:
            print_end(record, show_usage=self._ask.show_usage)
