"""Limit of open files -> whether this process can open a few more; checked when opening something has failed.

A host lookup without a free descriptor fails as if the name were wrong, so the error alone does not show the cause.
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


class Descriptors:
    """The descriptors of a process.

    Attributes:
        short: whether too few were free at the last check.
    """

    def __init__(self) -> None:
        self.short = False

    def look(self) -> bool:
        """Whether too few are free now; sets `short`."""
        before, self.short = self.short, not _can_open(_SPARE)
        if self.short and not before:
            log.error("files.short", reason=TOO_MANY_FILES)
        elif before and not self.short:
            log.warning("files.enough")
        return self.short

    async def until_enough(self) -> None:
        """Return when enough are free."""
        while self.look():  # noqa: ASYNC110 - nothing tells when a descriptor is free
            await asyncio.sleep(_PAUSE_SECONDS)


descriptors = Descriptors()
"""The descriptors of this process, whose limit applies to all its threads."""


def _can_open(count: int) -> bool:
    with ExitStack() as opened:
        try:
            for _ in range(count):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            return error.errno not in {errno.EMFILE, errno.ENFILE}
    return True
