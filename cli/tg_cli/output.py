"""Answer -> stdout: each piece at once, without ever blocking the loop, and with one line end at the end."""

import asyncio
import os
import select
import sys
from typing import Self

from tg_cli.entry import Failure, ReaderLeft

_AT_ONCE = 4096
"""Bytes that a pipe which is ready takes without blocking (POSIX: PIPE_BUF)."""
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


class Output:
    """The standard output of this process. On a terminal, control characters of the model are left out."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise ReaderLeft
        self._descriptor = sys.stdout.fileno()
        self._terminal = os.isatty(self._descriptor)
        self._open_line = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        interrupted = kind is not None and not issubclass(kind, Exception)
        if self._open_line and not (interrupted and self._blocked()):
            await self._write(b"\n")

    async def text(self, text: str) -> None:
        """Write a piece of the answer."""
        shown = text.translate(_CONTROLS) if self._terminal else text
        if shown:
            self._open_line = not shown.endswith("\n")
            await self._write(shown.encode("utf-8", "replace"))

    async def line(self, data: bytes) -> None:
        """Write a line of its own."""
        await self._write(data + b"\n")

    async def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                await self._ready()
                try:
                    rest = rest[os.write(self._descriptor, rest[:_AT_ONCE]) :]
                except BlockingIOError:
                    continue
        except BrokenPipeError:
            self._open_line = False
            raise ReaderLeft from None
        except OSError as error:
            self._open_line = False
            raise Failure(f"the output cannot be written: {os.strerror(error.errno or 0)}") from None

    def _blocked(self) -> bool:
        return not select.select((), (self._descriptor,), (), 0)[1]

    async def _ready(self) -> None:
        if not self._blocked():
            return
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_writer(self._descriptor, _settle, ready)
        try:
            await ready
        finally:
            loop.remove_writer(self._descriptor)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
