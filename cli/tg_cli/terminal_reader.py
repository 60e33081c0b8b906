"""Keyboard -> messages: a line editor on the terminal, with the earlier messages as its history."""

from prompt_toolkit import PromptSession
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output

from tg_cli.line_reader import CONTINUED

PROMPT, MORE = "> ", ". "
"""The prompts of a message's first line and of its further lines."""


class TerminalReader:
    """See `LineReader`. Enter sends a message; after a backslash, or with Alt, it starts another line."""

    interactive = True

    def __init__(self) -> None:
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=MORE,
            key_bindings=_bindings(),
            # Answers may be redirected to a file while the editor needs the terminal.
            output=create_output(always_prefer_tty=True),
        )

    async def read(self) -> str | None:
        """See `LineReader`. Ctrl-C clears the message, and Ctrl-D ends the input."""
        while True:
            try:
                return await self._session.prompt_async()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return None


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith(CONTINUED):
            buffer.delete_before_cursor(len(CONTINUED))
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return bindings
