"""Pipe -> gateway: the whole life of one gateway process of several, which `GatewayWorker` starts."""

import os
import pickle
import sys
from typing import TYPE_CHECKING, NoReturn, cast

if TYPE_CHECKING:
    from tg_serve.gateway_worker import Work


def main() -> NoReturn:
    """Serve until told to end, or until the parent has ended."""
    # The pipe stays open: it ends with the parent.
    with os.fdopen(0, "rb", closefd=False) as pipe:
        work = cast("Work", pickle.load(pipe))  # noqa: S301 - from the process that started us
    sys.path[:] = work.path
    # Only now: what is configured may be where only the parent's path leads.
    from tg_schema import TgError
    from tg_serve import launcher
    from tg_serve.gateway_worker import FAILED

    try:
        launcher.serve_worker(work, _tell)
    except TgError as error:
        _tell(FAILED + " ".join(error.message.split()))
        sys.exit(1)
    sys.exit(0)


def _tell(line: str) -> None:
    """One line to the parent, which reads no other."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
