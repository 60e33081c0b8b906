"""Limit of open files -> whether this process can open a few more; looked at when opening something has failed.

A lookup of a host that lacks a descriptor fails as if the name were wrong, so the error alone does not tell.
"""

import asyncio
import errno
import os
from contextlib import ExitStack

import structlog

log = structlog.get_logger()

TOO_MANY_FILES = (
    "the processor has as many files open as it may (EMFILE), and connections count too; its operator must raise the "
    "limit (ulimit -n, LimitNOFILE of systemd), or lower the model's capacity"
)
_SPARE = 8
"""Descriptors that must be free: a request needs one for its connection, and for a moment more to look its host up."""
_PAUSE_SECONDS = 0.5
_short = False


def look_at_files() -> bool:
    """Whether too few descriptors are free now; `are_files_short` says so until there are enough."""
    global _short
    before, _short = _short, not _can_open(_SPARE)
    if _short and not before:
        log.error("files.short", reason=TOO_MANY_FILES)
    elif before and not _short:
        log.warning("files.enough")
    return _short


def are_files_short() -> bool:
    """Whether opening something has failed for lack of descriptors, and too few are free still."""
    return _short and look_at_files()


async def until_enough_files() -> None:
    """Return when there are enough."""
    while are_files_short():  # noqa: ASYNC110 - nothing tells when a descriptor is free
        await asyncio.sleep(_PAUSE_SECONDS)


def _can_open(count: int) -> bool:
    with ExitStack() as opened:
        try:
            for _ in range(count):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            return error.errno not in {errno.EMFILE, errno.ENFILE}
    return True
