"""Pipe -> server: the main function of one worker process, which `WorkerServer` starts."""

import os
import pickle
import sys
from contextlib import suppress
from functools import partial
from typing import NoReturn

from tg_base.server.worker_server import FAILED, Work
from tg_schema import TgError


def main() -> NoReturn:
    """Serve until told to end, or until the parent has ended."""
    # Redirect prints to the log: on the original stdout the parent expects only our lines.
    parent = os.dup(1)
    os.dup2(2, 1)
    report = partial(_report, parent)
    # The pipe stays open: it ends with the parent.
    with os.fdopen(0, "rb", closefd=False) as pipe:
        # The path comes first: unpickling the work imports the modules that it names.
        sys.path[:] = pickle.load(pipe)  # noqa: S301 - from the process that started us
        work: Work = pickle.load(pipe)  # noqa: S301 - as above
    try:
        work.serve(work, report)
    except TgError as error:
        report(FAILED + " ".join(error.message.split()))
        sys.exit(1)
    sys.exit(0)


def _report(parent: int, line: str) -> None:
    # The parent may have ended already.
    with suppress(BrokenPipeError):
        os.write(parent, f"{line}\n".encode())
