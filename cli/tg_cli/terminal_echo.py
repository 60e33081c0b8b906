"""Terminal -> what is drawn on it: while an answer is drawn anew, typed keys are not shown between its lines."""

import os
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def without_echo(terminal: int) -> Iterator[None]:
    """Keep a terminal from showing what is typed, `^C` included: it would move the lines that are to be erased."""
    before = _silence(terminal)
    try:
        yield
    finally:
        if before:
            with suppress(termios.error):
                termios.tcsetattr(terminal, termios.TCSANOW, before)


def _silence(terminal: int) -> list[Any]:
    """Switch the echo off. Returns the attributes before; none if the terminal is not this process's to change."""
    try:
        # A process in the background would be stopped.
        if os.tcgetpgrp(terminal) != os.getpgrp():
            return []
        before = termios.tcgetattr(terminal)
        termios.tcsetattr(terminal, termios.TCSANOW, [*before[:3], before[3] & ~termios.ECHO, *before[4:]])
    except (OSError, termios.error):
        return []
    return before
