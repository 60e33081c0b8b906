"""Command -> entry: how a command ends early, and the sentence about it on stderr."""

import os
import sys
from typing import TYPE_CHECKING

import click

from tg_cli.terminal_text import remove_controls

if TYPE_CHECKING:
    from tg_schema import TgError

STANDARD_ERROR = 2
"""The file descriptor of stderr (POSIX)."""
EXIT_FAILED = 1


class Failure(click.ClickException):
    """Ends a command with one sentence, which may be that of an error."""

    exit_code = EXIT_FAILED

    def __init__(self, sentence: str, error: "TgError | None" = None) -> None:
        super().__init__(sentence)
        self.error = error


class Interrupted(Exception):
    """Ctrl-C, after everything was closed."""


class ReaderLeft(Exception):
    """The reader of the output has closed it."""


def notify(sentence: str) -> None:
    """Tell the user something beside the answer, on stderr; a closed stderr is not a failure."""
    try:
        if sys.stderr is not None:
            # The sentence may quote a gateway or a model's name, and so hold control characters.
            shown = remove_controls(sentence) if sys.stderr.isatty() else sentence
            sys.stderr.write(f"{shown}\n")
            sys.stderr.flush()
    except OSError:
        mute(STANDARD_ERROR)


def mute(descriptor: int) -> None:
    """Discard what the interpreter flushes at exit, so that the flush does not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
