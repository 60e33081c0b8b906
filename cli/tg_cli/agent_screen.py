"""Events of an agent -> terminal: thoughts dim, actions marked, observations short, the answer plain.

The answer goes to stdout and everything else to stderr, so that a pipe gets only the answer. A terminal shows the
answer as it comes. A pipe gets it when the dialog has ended, since an agent may withdraw what it has begun.
"""

import sys
from io import StringIO

from tg_cli.endings import Failure, ReaderLeft
from tg_cli.output import BOLD, DIM, Output
from tg_client import Action, AgentEvent, Answer, Observation
from tg_schema import encode
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.errors import TooLarge


class Shortened:
    """Passes the beginning of a text on, and counts the characters of the rest.

    Args:
        characters: how many at most; None = the whole text.
        lines: how many at most.

    Attributes:
        left_out: how many characters were dropped, without blanks at the ends of pieces.
    """

    def __init__(self, characters: int | None, lines: int) -> None:
        self.left_out = 0
        self._characters = characters
        self._lines = lines
        self._cut = False

    def take(self, text: str) -> str:
        """The part of the next piece that is shown."""
        if self._characters is None:
            return text
        through = "" if self._cut else "\n".join(text[: self._characters].split("\n", self._lines)[: self._lines])
        self._cut = self._cut or through != text
        self._characters -= len(through)
        self._lines -= through.count("\n")
        self.left_out += len(text[len(through) :].strip())
        return through


MOST_CHARACTERS, MOST_LINES = 400, 6
"""The part of an observation that is shown, unless everything is asked for."""
_MAX_ARGUMENTS_CHARACTERS = 200
_INDENT = "  "


class AgentScreen:
    """Shows one dialog, one message after the other.

    Args:
        answer: the output of the answer.
        verbose: show whole observations, and all steps even if stderr is not a terminal.
    """

    def __init__(self, answer: Output, *, verbose: bool) -> None:
        self._answer = answer
        self._verbose = verbose
        self._steps = _open_output(verbose)
        self._message: tuple[str | None, type[AgentEvent]] | None = None
        self._shown = False
        self._shortened = Shortened(None, 0)
        self._held = StringIO()
        """The beginning of an answer, which is not yet written to a pipe."""
        self._breaks = ""
        """Line breaks of the observation that are held back until text follows."""

    async def show(self, event: AgentEvent) -> None:
        """Show the next piece.

        Raises:
            TooLarge: an answer has more than `MAX_ANSWER_BYTES`.
        """
        begins = self._message != (event.message_id, type(event))
        self._message = None if event.complete else (event.message_id, type(event))
        if isinstance(event, Answer) and not event.path:
            await self._show_answer(event, begins=begins)
        elif self._steps is not None:
            self._shown = True
            await self._step(event, begins=begins)

    async def end(self) -> None:
        """End an open line. An answer that did not reach its end is shown as a step."""
        await self._withdraw()
        await self._end_line()

    async def _end_line(self) -> None:
        if self._steps is not None and self._steps.open_line:
            await self._write("\n")

    async def _show_answer(self, event: Answer, *, begins: bool) -> None:
        # A terminal can mark text as withdrawn. Text in a pipe cannot be taken back, so hold it until the end.
        if not self._answer.terminal:
            await self._hold(event)
            return
        if begins and self._shown:
            await self._write("\n")
        await self._answer.text(event.content)
        if event.complete and not event.final and self._answer.open_line:
            await self._answer.text("\n")
            await self._write("(this was not the answer yet)\n", DIM)

    async def _hold(self, event: Answer) -> None:
        self._held.write(event.content)
        if self._held.tell() > MAX_ANSWER_BYTES:
            raise TooLarge(f"the agent's answer is larger than {MAX_ANSWER_BYTES} bytes; ask a smaller question")
        if event.final:
            await self._answer.text(self._take_held())
        elif event.complete:
            await self._withdraw()

    def _take_held(self) -> str:
        held, self._held = self._held.getvalue(), StringIO()
        return held

    async def _withdraw(self) -> None:
        """Show the held text as a step: it was a thought, not the answer."""
        if text := self._take_held():
            await self._end_line()
            await self._write(text, DIM)
            await self._end_line()

    async def _step(self, event: AgentEvent, *, begins: bool) -> None:
        if begins:
            await self._end_line()
            await self._write("".join(f"{name}: " for name in event.path), BOLD)
        if isinstance(event, Action):
            await self._write(f"→ {event.tool} {self._arguments(event)}", BOLD)
        elif isinstance(event, Observation):
            await self._show_observation(event, begins=begins)
        else:
            await self._write(event.content, DIM)
        if event.complete:
            await self._end_line()

    def _arguments(self, action: Action) -> str:
        text = action.arguments if isinstance(action.arguments, str) else encode(action.arguments).decode()
        return (
            text if self._verbose or len(text) <= _MAX_ARGUMENTS_CHARACTERS else f"{text[:_MAX_ARGUMENTS_CHARACTERS]}…"
        )

    async def _show_observation(self, event: Observation, *, begins: bool) -> None:
        if begins:
            self._shortened, self._breaks = Shortened(None if self._verbose else MOST_CHARACTERS, MOST_LINES), ""
        text = self._breaks + self._shortened.take(event.content)
        shown = text.rstrip("\n")
        self._breaks = text[len(shown) :]
        indented = shown.replace("\n", f"\n{_INDENT}")
        await self._write(f"{_INDENT}{indented}" if begins else indented, DIM)
        if event.complete and self._shortened.left_out:
            await self._write(f" … {self._shortened.left_out:,} more characters (-v shows all)", DIM)

    async def _write(self, text: str, style: str = "") -> None:
        """Write to stderr; a closed stderr is not a failure."""
        if self._steps is None:
            return
        try:
            await self._steps.text(text, style)
        except (ReaderLeft, Failure):
            self._steps = None


def _open_output(verbose: bool) -> Output | None:
    """Stderr, if the steps are to be shown."""
    if sys.stderr is None:
        return None
    steps = Output(sys.stderr)
    return steps if steps.terminal or verbose else None
