"""Standard input -> messages: each line, or several lines joined by backslashes; or the reader of a terminal."""

import asyncio
import os
import select
import sys

import click

from tg_cli.invoke_options import is_piped
from tg_cli.line_reader import CONTINUED, LineReader
from tg_cli.output import until_ready

_READ_BYTES = 64 * 1024


class PipeReader:
    """See `LineReader`. It reads no more of standard input than it needs.

    Raises:
        UsageError: standard input is closed; while reading: it is not UTF-8 text.
    """

    interactive = False

    def __init__(self) -> None:
        if sys.stdin is None:
            raise click.UsageError("standard input is closed: pipe messages in, or run it on a terminal")
        self._descriptor = sys.stdin.fileno()
        self._unread = b""
        self._ended = False

    async def read(self) -> str | None:
        """See `LineReader`."""
        lines: list[str] = []
        while (line := await self._line()) is not None:
            if not line.endswith(CONTINUED):
                return "\n".join([*lines, line])
            lines.append(line.removesuffix(CONTINUED))
        return "\n".join(lines) if lines else None

    async def _line(self) -> str | None:
        while b"\n" not in self._unread and not self._ended:
            if not select.select((self._descriptor,), (), (), 0)[0]:
                loop = asyncio.get_running_loop()
                await until_ready(self._descriptor, loop.add_reader, loop.remove_reader)
            # Do not use `sys.stdin`: `select` does not see what its buffer has read ahead.
            try:
                received = os.read(self._descriptor, _READ_BYTES)
            except OSError as error:
                raise click.UsageError(f"standard input cannot be read: {error.strerror}") from None
            self._ended = not received
            self._unread += received
        if not self._unread:
            return None
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            return line.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError:
            raise click.UsageError("standard input is not UTF-8 text") from None


def open_reader() -> LineReader:
    """A line editor on a terminal; a line reader in a pipe."""
    if sys.stdin is None or is_piped():
        return PipeReader()
    from tg_cli.terminal_reader import TerminalReader

    return TerminalReader()
