"""Text -> stdout or stderr: each piece at once, without blocking the loop, and with one line break at the end."""

import asyncio
import os
import select
import stat
import sys
from collections.abc import Callable
from typing import Final, Self, TextIO

from tg_cli.endings import Failure, ReaderLeft
from tg_cli.terminal_text import escape_controls, remove_controls

_PIPE_BYTES = 4096
"""Bytes that a ready pipe accepts without blocking (POSIX: PIPE_BUF)."""

BOLD: Final = "\x1b[1m"
DIM: Final = "\x1b[2m"
"""Styles of a text (ECMA-48, section 8.3.117)."""
_PLAIN = "\x1b[0m"


class Output:
    """An output of this process. On a terminal, the model's control characters are removed.

    Within its block, the task that entered it is cancelled when the reader of a pipe closes it, even between writes.

    Args:
        stream: sys.stderr; default: sys.stdout.

    Attributes:
        terminal: whether it is a terminal.
        open_line: whether the last line has no line break yet.

    Raises:
        ReaderLeft: the reader closed it before this process began. Writing, and leaving the block, raise it when the
            reader has closed it.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stdout
        if stream is None:
            raise ReaderLeft
        self._descriptor = stream.fileno()
        self.terminal = os.isatty(self._descriptor)
        self.open_line = False
        self._reader_left = False
        self._coloured = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    async def __aenter__(self) -> Self:
        if (task := asyncio.current_task()) is not None and stat.S_ISFIFO(os.fstat(self._descriptor).st_mode):
            asyncio.get_running_loop().add_reader(self._descriptor, self._notice_end, task)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        if self._reader_left and (task := asyncio.current_task()) is not None and not task.uncancel():
            raise ReaderLeft
        interrupted = kind is not None and not issubclass(kind, Exception)
        if self.open_line and not (interrupted and self.is_blocked()):
            await self._write(b"\n")

    async def text(self, text: str, style: str = "") -> None:
        """Write a piece of text; its style is applied if the output has colours (a terminal, without NO_COLOR)."""
        # A model's escape sequences could change the terminal's title, or what its user pastes next.
        shown = remove_controls(text) if self.terminal else text
        if shown:
            self.open_line = not shown.endswith("\n")
            styled = f"{style}{shown}{_PLAIN}" if style and self._coloured else shown
            await self._write(styled.encode("utf-8", "replace"))

    async def json(self, record: bytes) -> None:
        """Write a line of JSON."""
        self.open_line = True
        await self._write((escape_controls(record) if self.terminal else record) + b"\n")
        self.open_line = False

    def is_blocked(self) -> bool:
        """Whether its reader has not yet taken what was written before."""
        return not select.select((), (self._descriptor,), (), 0)[1]

    async def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                if self.is_blocked():
                    loop = asyncio.get_running_loop()
                    await until_ready(self._descriptor, loop.add_writer, loop.remove_writer)
                try:
                    rest = rest[os.write(self._descriptor, rest[:_PIPE_BYTES]) :]
                except BlockingIOError:
                    continue
        except BrokenPipeError:
            self.open_line = False
            raise ReaderLeft from None
        except OSError as error:
            self.open_line = False
            raise Failure(f"the output cannot be written: {os.strerror(error.errno or 0)}") from None

    def _notice_end(self, task: "asyncio.Task[object]") -> None:
        """Called when the pipe's other end is closed, or when a pipe that was opened for both has something to read."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        poll = select.poll()
        poll.register(self._descriptor, 0)
        if poll.poll(0):
            self._reader_left = True
            task.cancel()


async def until_ready(descriptor: int, add: Callable[..., object], remove: Callable[[int], object]) -> None:
    """Wait until a descriptor can be read or written; `add` and `remove` are the event loop's functions for that."""
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)
