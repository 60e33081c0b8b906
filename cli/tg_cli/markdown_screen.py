"""Records of an answer -> terminal: Markdown, laid out while it comes."""

import os
import re
import sys
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.spinner import Spinner

from tg_cli.terminal_text import remove_controls
from tg_schema import TextCompletionResponse

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def split_blocks(text: str) -> tuple[list[str], str]:
    """The complete blocks and the rest, which together are the text.

    A block is complete when a blank line and the beginning of another block have followed. Indented text belongs to the
    block before, such as the second paragraph of a list's item.
    """
    complete: list[str] = []
    fence, blank, begins, place = "", False, 0, 0
    for line in text.splitlines(keepends=True):
        if not fence and blank and line[0] not in " \t\r\n":
            complete.append(text[begins:place])
            begins = place
        found = _FENCE.match(line)
        if fence:
            closed = found and found[1].startswith(fence) and not line[found.end() :].strip()
            fence = "" if closed else fence
        elif found:
            fence = found[1]
        blank = not line.strip()
        place += len(line)
    return complete, text[begins:]


@contextmanager
def without_echo(terminal: int) -> Iterator[None]:
    """Keep a terminal from showing what is typed, `^C` included: it would shift the lines that are to be erased."""
    before = _silence(terminal)
    try:
        yield
    finally:
        if before:
            with suppress(termios.error):
                termios.tcsetattr(terminal, termios.TCSANOW, before)


def _silence(terminal: int) -> list[Any]:
    """Switch the echo off. Returns the previous attributes, or none if this process may not change the terminal."""
    try:
        # The kernel would stop a background process that changes them.
        if os.tcgetpgrp(terminal) != os.getpgrp():
            return []
        before = termios.tcgetattr(terminal)
        termios.tcsetattr(terminal, termios.TCSANOW, [*before[:3], before[3] & ~termios.ECHO, *before[4:]])
    except (OSError, termios.error):
        return []
    return before


_SPARE_LINES = 2
"""Lines of the terminal that stay free, so that a growing block never scrolls."""


class MarkdownScreen:
    """See `ChatScreen`. A spinner until the first token, then Markdown; thinking is dim, as it comes."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, highlight=False)

    def tell(self, sentence: str) -> None:
        """See `ChatScreen`. The line stands above the spinner."""
        self._console.print(remove_controls(sentence), style="dim", markup=False)

    async def show(self, records: AsyncIterator[TextCompletionResponse]) -> None:
        """See `ChatScreen`."""
        with without_echo(sys.stdout.fileno()), _Page(self._console) as page:
            async for record in records:
                page.think(remove_controls(record.reasoning or ""))
                page.write(remove_controls(record.response or ""))


class _Page:
    """One answer: complete blocks are printed for good, and the growing one below them is redrawn."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = _live(console, Spinner("dots", "waiting"), auto_refresh=True)
        self._text = ""
        self._printed = self._thinking = False

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._live.stop()
        self._end_thinking()
        self._print(self._text)

    def think(self, text: str) -> None:
        """Show more of the thinking."""
        if text:
            self._live.stop()
            # Print it plainly, outside the live block: thinking is not Markdown, and may be long.
            self._thinking = True
            self._console.print(text, style="dim", end="", markup=False, soft_wrap=True)

    def write(self, text: str) -> None:
        """Show more of the answer."""
        if not text:
            return
        if self._thinking or not self._text:
            self._live.stop()
            self._end_thinking()
            self._live = _live(self._console, "", auto_refresh=False)
            self._live.start()
        complete, self._text = split_blocks(self._text + text)
        for block in complete:
            self._print(block)
        self._live.update(_Block(self._text, whole=False), refresh=True)

    def _end_thinking(self) -> None:
        if self._thinking:
            self._console.print("\n")
            self._thinking = False

    def _print(self, text: str) -> None:
        if text.strip():
            if self._printed:
                self._console.print()
            self._console.print(_Block(text, whole=True))
            self._printed = True


def _live(console: Console, shown: RenderableType, *, auto_refresh: bool) -> Live:
    # Transient: a growing block disappears when it is printed for good. Not redirected: rich would replace `sys.stdout`
    # for the whole process.
    return Live(
        shown, console=console, transient=True, auto_refresh=auto_refresh, redirect_stdout=False, redirect_stderr=False
    )


class _Block:
    """Markdown, laid out, without blank lines around it.

    Args:
        text: the Markdown.
        whole: show all of its lines; otherwise the last ones, as many as the terminal has.
    """

    def __init__(self, text: str, *, whole: bool) -> None:
        self._text = text
        self._whole = whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(Markdown(self._text), options, pad=False)
        shown = [number for number, line in enumerate(lines) if "".join(part.text for part in line).strip()]
        lines = lines[shown[0] : shown[-1] + 1] if shown else []
        for line in lines if self._whole else lines[-max(console.height - _SPARE_LINES, 1) :]:
            yield from line
            yield Segment.line()
