"""Files that are edited while a process runs -> when they may be read again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

POLL_SECONDS = 0.2
"""Polling interval in seconds. An edit is reported once two polls see the same files, so not during a write."""
MAX_UNSETTLED = 3
"""Polls in a row that may each see changed files; then the edits so far are reported. Otherwise a file that is
edited again and again would hold up the report for ever."""

_Signature = tuple[int, int, int] | None


class FileEdits:
    """Reports edits from its creation on, also one before the first `wait`.

    Args:
        files: a missing one counts as a state of its own.
        poll: polling interval in seconds; an edit is reported after about two of them, or after twice as many while
            others follow it. A growing file is still being written, and is reported when it has stopped growing.
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
    """Whether a file has grown, or is new, so that it may still be being written."""
    if before is None or now is None:
        return now is not None
    return before[2] == now[2] and before[1] < now[1]
