"""File -> a provider's key, read for every request: a rotated key takes effect without a restart."""

import asyncio
from pathlib import Path

import structlog

from tg_base.telemetry import hide_in_logs
from tg_schema.errors import ProviderAuth

log = structlog.get_logger()

MAX_KEY_BYTES = 64 * 1024
"""Maximum size of a key file in bytes."""


class KeyFile:
    """A key that may be rotated at any time, best atomically: write another file and rename it.

    Args:
        path: the file; white space around the key is stripped.
        named_by: the setting that names the file, for instance "the environment variable OPENAI_API_KEY_FILE".
        option: the key path of that setting in the provider's options, if it is an option.
    """

    def __init__(self, path: Path, named_by: str, *option: str) -> None:
        self._path = path
        self._option = option
        self._named_by = named_by
        self._last: str | None = None
        self._unreadable = False

    async def read(self) -> str:
        """The file's current key. While the file has none, the last key is used; the log says so once.

        Raises:
            ProviderAuth: the file never had a key. The message names the file's variable or option, never its content.
        """
        try:
            key = await asyncio.to_thread(self.read_now)
        except ProviderAuth as error:
            # A rotation that goes wrong must not stop a service whose old key may still be valid.
            if self._last is None:
                raise
            if not self._unreadable:
                log.error("key.unreadable", reason=error.message, action="the last key stays in use")
            self._unreadable = True
            return self._last
        if self._last is not None and (self._unreadable or key != self._last):
            log.info("key.read", source=self._named_by, changed=key != self._last)
        self._last, self._unreadable = key, False
        return key

    def read_now(self) -> str:
        """The file's current key. Blocks, and raises as `read` even if there was an earlier key."""
        try:
            with self._path.open("rb") as opened:
                data = opened.read(MAX_KEY_BYTES + 1)
        except (OSError, ValueError):
            raise self._wrong("cannot be read; it must hold the key") from None
        # latin-1 decodes any byte, so that a binary file is rejected as a key below and not by a decoding error.
        key = data.decode("latin-1").strip()
        if len(data) > MAX_KEY_BYTES or not is_key(key):
            raise self._wrong("holds no key: write the key into it, and no more")
        hide_in_logs(key)
        return key

    def _wrong(self, what: str) -> ProviderAuth:
        return ProviderAuth(f"the file that {self._named_by} names {what}").at(*self._option)


def is_key(text: str) -> bool:
    """Whether an HTTP header can carry it: printable ASCII without blanks."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
