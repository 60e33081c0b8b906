"""Pipe -> server: the whole life of one process of several that serve alike, which `WorkerServer` starts."""

import os
import pickle
import sys
from typing import NoReturn

from tg_base.server.worker_server import FAILED, Work
from tg_schema import TgError


def main() -> NoReturn:
    """Serve until told to end, or until the parent has ended."""
    # The pipe stays open: it ends with the parent.
    with os.fdopen(0, "rb", closefd=False) as pipe:
        # The path first: what the work names is imported when it is read.
        sys.path[:] = pickle.load(pipe)  # noqa: S301 - from the process that started us
        work: Work = pickle.load(pipe)  # noqa: S301 - as above
    try:
        work.serve(work, _tell)
    except TgError as error:
        _tell(FAILED + " ".join(error.message.split()))
        sys.exit(1)
    sys.exit(0)


def _tell(line: str) -> None:
    """One line to the parent, which reads no other: what is printed later goes to the log, not into a full pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    os.dup2(2, 1)
