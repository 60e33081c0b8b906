"""Files that are edited while a process runs -> when they may be read again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

POLL_SECONDS = 0.2
"""Polling interval in seconds. An edit is told when two polls see the same files, so never while they are written."""

_Signature = tuple[int, int, int] | None


class FileEdits:
    """Edits from now on: one before the first wait is told too.

    Args:
        files: a missing one counts as a state of its own.
        poll: polling interval in seconds; an edit is told after about two of them.
    """

    def __init__(self, files: Sequence[Path], poll: float = POLL_SECONDS) -> None:
        self._files = files
        self._poll = poll
        self._known = self._last = self._look()

    async def wait(self) -> None:
        """Wait until the files differ from those of the last wait, and no longer change."""
        while True:
            await asyncio.sleep(self._poll)
            self._last, before = await asyncio.to_thread(self._look), self._last
            if self._last == before and self._last != self._known:
                self._known = self._last
                return

    def _look(self) -> tuple[_Signature, ...]:
        return tuple(_sign(file) for file in self._files)


def _sign(file: Path) -> _Signature:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
