"""File -> a provider's key, read for every request: a rotated key is in force without a restart."""

import asyncio
from pathlib import Path

import structlog

from tg_base.telemetry import hide_in_logs
from tg_schema.errors import ProviderAuth

log = structlog.get_logger()

MAX_KEY_BYTES = 64 * 1024
"""Bytes of a file that holds a key."""


class KeyFile:
    """A key that its file may change at any time, best in one step: write another file and rename it.

    Args:
        path: the file; blanks and line ends around the key are no part of it.
        named_by: what names the file, for instance "the environment variable OPENAI_API_KEY_FILE".
        option: the same as a key of the provider's options, where it is one.
    """

    def __init__(self, path: Path, named_by: str, *option: str) -> None:
        self._path = path
        self._option = option
        self._named_by = named_by
        self._last: str | None = None
        self._unreadable = False

    async def read(self) -> str:
        """The key that the file holds now. Where it has none, the last one, and the log says so once.

        Raises:
            ProviderAuth: it never had one; the message names the file's variable or option, and nothing in the file.
        """
        try:
            key = await asyncio.to_thread(self.read_now)
        except ProviderAuth as error:
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
        """The key that the file holds now. Blocks; raises as `read`, always."""
        try:
            with self._path.open("rb") as opened:
                data = opened.read(MAX_KEY_BYTES + 1)
        except (OSError, ValueError):
            raise self._wrong("cannot be read; it must hold the key") from None
        key = data.decode("latin-1").strip()
        if len(data) > MAX_KEY_BYTES or not is_key(key):
            raise self._wrong("holds no key: write the key into it, and no more")
        hide_in_logs(key)
        return key

    def _wrong(self, what: str) -> ProviderAuth:
        return ProviderAuth(f"the file that {self._named_by} names {what}").at(*self._option)


def is_key(text: str) -> bool:
    """Whether a header can carry it: one word of printable ASCII."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
