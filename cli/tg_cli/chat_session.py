"""Messages -> gateway -> screen: a chat, one question after the other."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Protocol

from tg_cli.chat_commands import ChatCommands, is_command
from tg_cli.conversation import ChatModel, Conversation
from tg_cli.endings import notify
from tg_cli.gateway_choice import open_gateway
from tg_cli.invocation import handle_line, tell_wait
from tg_cli.invoke_options import choose_flow
from tg_cli.line_reader import LineReader
from tg_cli.output import Output
from tg_cli.pipe_reader import open_reader
from tg_cli.renderer import print_end
from tg_client import TextCompletionResult, TgClient
from tg_schema import Message, TextCompletionResponse, TgError
from tg_schema.answer_collector import AnswerCollector
from tg_schema.errors import NotFound


class ChatScreen(Protocol):
    """Shows one answer after the other."""

    async def show(self, records: AsyncIterator[TextCompletionResponse]) -> None:
        """Show an answer as it comes. The shown part stays when the answer fails or is stopped."""

    def tell(self, sentence: str) -> None:
        """Tell the user something while an answer is on its way."""


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
    # Plain text is written as UTF-8 in any locale. The Markdown renderer fails if the locale lacks its spinner.
    if sys.stdout.encoding.lower() != "utf-8":
        return PlainScreen()
    from tg_cli.markdown_screen import MarkdownScreen

    return MarkdownScreen()


async def run_chat(url: str | None, timeout: float, chat_model: ChatModel, conversation: Conversation) -> None:
    """Talk until the user's last message.

    Raises:
        Failure: a command of the chat failed, in a pipe.
        TgError: there is no gateway; in a pipe also: an answer failed.
    """
    reader, screen = open_reader(), make_screen()
    tell = partial(tell_wait, tell=screen.tell)
    async with open_gateway(url) as chosen, TgClient(chosen, timeout=timeout, on_retry=tell) as client:
        await ChatSession(client, chat_model, conversation, reader, screen).run()


class ChatSession:
    """One chat.

    Args:
        client: the client of the gateway.
        chat_model: the model; /model changes it.
        conversation: the turns so far.
        reader: where messages come from.
        screen: where answers go to.
    """

    def __init__(
        self,
        client: TgClient,
        chat_model: ChatModel,
        conversation: Conversation,
        reader: LineReader,
        screen: ChatScreen,
    ) -> None:
        self._client = client
        self._chat_model = chat_model
        self._conversation = conversation
        self._reader = reader
        self._screen = screen
        self._commands = ChatCommands(client, chat_model, conversation)

    async def run(self) -> None:
        """Answer each message until there is none any more, or /quit."""
        if self._reader.interactive:
            await self._greet()
        while not self._commands.ended and (message := await self._reader.read()) is not None:
            if message.strip():
                # "//" begins a message that begins with a slash.
                work = self._commands.run(message) if is_command(message) else self._answer(message.removeprefix("/"))
                await handle_line(work, interactive=self._reader.interactive)

    async def _greet(self) -> None:
        with suppress(NotFound):
            flow = choose_flow(self._chat_model.flow, self._chat_model.model)
            rows = await self._client.models()
            named = [
                row.model for row in rows if self._chat_model.model in {row.model, None} and flow in {row.flow, None}
            ]
            notify(
                f"{named[0] if named else self._chat_model.model or 'no model'}; /help lists the commands, Ctrl-D ends"
            )

    async def _answer(self, question: str) -> None:
        answer: AnswerCollector[TextCompletionResponse] = AnswerCollector(TextCompletionResponse.join)
        asked = self._conversation.ask(question)
        flow = self._client.flow(choose_flow(self._chat_model.flow, self._chat_model.model))
        stream = flow.text_completion_stream(
            self._conversation.system,
            # Images need a turn, which then holds the question too.
            "" if asked.images else question,
            messages=(*self._conversation.turns, *([asked] if asked.images else [])),
            model=self._chat_model.model,
            sampling=self._chat_model.sampling,
            keep=self._chat_model.keep,
        )
        try:
            async with stream as records:
                await self._screen.show(_collected(records, answer))
        except (asyncio.CancelledError, TgError):
            # Cut-off thinking has no signature, so only the text of a partial answer is kept.
            if text := "".join(record.response or "" for record in answer.records() if record.index == 0):
                self._conversation.add(asked, Message("assistant", text))
            raise
        result = TextCompletionResult.of(answer.records())
        if result.text:
            self._conversation.add(asked, result.turn)
        else:
            notify("the model gave no answer")
        print_end(result, show_usage=False)


async def _collected(
    records: AsyncIterator[TextCompletionResponse], answer: AnswerCollector[TextCompletionResponse]
) -> AsyncIterator[TextCompletionResponse]:
    async for record in records:
        answer.add(record)
        yield record
