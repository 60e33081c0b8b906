"""Log lines -> stderr, which may be closed, or on a full disk."""

from typing import TextIO


class LogStream:
    """Drops the lines that cannot be written, so that a full disk fails no request.

    Args:
        stream: standard error; None = this process was started without.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.terminal = stream is not None and stream.isatty()

    def write(self, text: str) -> None:
        """Write, if that is possible."""
        try:
            if self._stream is not None:
                self._stream.write(text)
        except (OSError, ValueError):
            # A failure of the log has nowhere to be reported. A closed file object raises a ValueError.
            return

    def flush(self) -> None:
        """Flush, if that is possible."""
        try:
            if self._stream is not None:
                self._stream.flush()
        except (OSError, ValueError):
            return
