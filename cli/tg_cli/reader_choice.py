"""Standard input -> the reader that fits it."""

import sys

from tg_cli.invoke_options import is_piped
from tg_cli.line_reader import LineReader
from tg_cli.pipe_reader import PipeReader


def open_reader() -> LineReader:
    """A line editor on a terminal; through a pipe, its lines."""
    if sys.stdin is None or is_piped():
        return PipeReader()
    from tg_cli.terminal_reader import TerminalReader

    return TerminalReader()
