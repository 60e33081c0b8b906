"""Completions and prompts -> stdout: their text as it comes, or one JSON object a line."""

from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from tg_cli.ask import Ask
from tg_cli.display import record_line, usage
from tg_cli.entry import say
from tg_cli.output import Output
from tg_schema.prompt import PromptResponse
from tg_schema.text_completion import TextCompletionResponse

_CUT = {
    "length": "the answer is cut: the model has reached its limit of tokens",
    "content_filter": "the answer is cut: the provider's content filter has stopped it",
}

Told = TypeVar("Told", TextCompletionResponse, PromptResponse)


class AnswerDisplay(Generic[Told]):
    """See `Display`.

    Args:
        ask: how to show the answer.
        text: what of a record is shown.
    """

    def __init__(self, ask: Ask, text: Callable[[Told], str | None]) -> None:
        self._ask = ask
        self._text: Callable[[Told], str | None] = text

    async def show(self, records: AsyncIterator[Told]) -> None:
        """See `Display`."""
        record = None
        async with Output() as output:
            async for record in records:
                if self._ask.json:
                    await output.line(record_line(record))
                else:
                    await output.text(self._text(record) or "")
        if record is not None:
            self._tell(record)

    def _tell(self, last: Told) -> None:
        if last.finish_reason in _CUT:
            say(_CUT[last.finish_reason])
        if self._ask.show_usage:
            say(usage(last))
