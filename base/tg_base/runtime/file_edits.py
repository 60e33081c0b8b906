"""Files that are edited while a process runs -> when they may be read again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

POLL_SECONDS = 0.2
"""Polling interval in seconds. An edit is told when two polls see the same files, so not while they are written."""
MAX_UNSETTLED = 3
"""Polls in a row that may see other files each time; then the edits are told that came until then. Who edits one of
many files again and again would otherwise never be heard."""

_Signature = tuple[int, int, int] | None


class FileEdits:
    """Edits from now on: one before the first wait is told too.

    Args:
        files: a missing one counts as a state of its own.
        poll: polling interval in seconds; an edit is told after about two of them, and after twice as many while
            others follow it. A file that grows is still being written, and told of when it no longer does.
    """

    def __init__(self, files: Sequence[Path], poll: float = POLL_SECONDS) -> None:
        self._files = files
        self._poll = poll
        self._known = self._last = self._look()

    async def wait(self) -> None:
        """Wait until the files differ from those of the last wait, and are whole."""
        unsettled = 0
        while True:
            await asyncio.sleep(self._poll)
            self._last, before = await asyncio.to_thread(self._look), self._last
            is_settled = self._last == before
            unsettled = 0 if is_settled else unsettled + 1
            is_late = unsettled >= MAX_UNSETTLED and not any(map(_grows, before, self._last))
            if (is_settled or is_late) and self._last != self._known:
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


def _grows(before: _Signature, now: _Signature) -> bool:
    """Whether somebody writes on in a file, or perhaps in one that is new."""
    if before is None or now is None:
        return now is not None
    return before[2] == now[2] and before[1] < now[1]
