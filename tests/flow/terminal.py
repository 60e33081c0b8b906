"""A command on a terminal of its own: what is typed, and what a user sees of it."""

import asyncio
import fcntl
import os
import struct
import termios
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pyte
from typing_extensions import override

from tests.flow.command import SCRIPTS, environment

LINES, COLUMNS = 30, 100
INTERRUPT, END, ENTER, ALT_ENTER, UP = "\x03", "\x04", "\r", "\x1b\r", "\x1b[A"
_ON_TERMINAL = 'terminal=$0; exec "$@" <>"$terminal" >&0 2>&0'
"""The first terminal that the leader of a session opens is the session's: its Ctrl-C is a signal then."""


class _Screen(pyte.Screen):
    """It answers, as terminals do when a program asks where the cursor is."""

    def __init__(self, answer: Callable[[str], None], lines: int, columns: int) -> None:
        super().__init__(columns, lines)
        self._answer = answer

    @override
    def write_process_input(self, data: str) -> None:
        self._answer(data)


class Terminal:
    """A terminal with a screen, and the process on it."""

    def __init__(self, descriptor: int, lines: int = LINES, columns: int = COLUMNS) -> None:
        self._descriptor = descriptor
        self._screen = _Screen(self.type, lines, columns)
        self._stream = pyte.ByteStream(self._screen)
        self._news = asyncio.Event()
        self.received = b""
        self.process: Process

    @property
    def text(self) -> str:
        """The lines of the screen, without the blanks at their ends."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip("\n")

    def type(self, keys: str) -> None:
        """Type."""
        os.write(self._descriptor, keys.encode())

    async def until(self, seen: str | Callable[[str], bool]) -> str:
        """Wait until the screen has a text, or is as it should be."""
        right = (lambda text: seen in text) if isinstance(seen, str) else seen
        try:
            async with asyncio.timeout(20):
                while not right(self.text):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"the screen is\n{self.text}") from None
        return self.text

    async def enter(self, keys: str, seen: str) -> str:
        """Type, and wait until the screen has a text."""
        self.type(keys)
        return await self.until(seen)

    async def enter_until_asked(self, keys: str, times: int) -> str:
        """Type, and wait for the prompt below `times - 1` messages."""
        self.type(keys)
        return await self.until_asked(times)

    async def until_asked(self, times: int) -> str:
        """Wait for the prompt below `times - 1` messages."""
        return await self.until(lambda text: _count_prompts(text) == times and text.split("\n")[-1] == ">")

    def read(self) -> None:
        """Something was written, or the last process has closed the terminal."""
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            return
        self.received += data
        self._stream.feed(data)
        self._news.set()


def _count_prompts(text: str) -> int:
    return sum(line == ">" or line.startswith("> ") for line in text.split("\n"))


@asynccontextmanager
async def on_terminal(program: str, *arguments: str, **variables: str) -> AsyncIterator[Terminal]:
    """Start a command of ours on a terminal, whose size LINES and COLUMNS may say; it is killed here at the latest."""
    ours, theirs = os.openpty()
    lines, columns = int(variables.get("LINES", LINES)), int(variables.get("COLUMNS", COLUMNS))
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    terminal = Terminal(ours, lines, columns)
    terminal.process = await asyncio.create_subprocess_exec(
        "sh", "-c", _ON_TERMINAL, os.ttyname(theirs), SCRIPTS / program, *arguments,
        stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
        env=environment({"TERM": "xterm-256color", "LANG": "C.UTF-8", "COLUMNS": str(columns), **variables}),
    )  # fmt: skip
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, terminal.read)
    try:
        yield terminal
    finally:
        with suppress(ProcessLookupError):
            terminal.process.kill()
        await terminal.process.wait()
        loop.remove_reader(ours)
        os.close(ours)
        os.close(theirs)
