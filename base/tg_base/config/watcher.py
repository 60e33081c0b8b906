"""Configuration file -> running services: what it says now, and who must hear when it is edited."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import structlog

from tg_base.config.changes import Changes
from tg_base.config.model import Config, ServiceConfig
from tg_base.config.reader import DEFAULT_FILE, read_config
from tg_base.config.services import SERVICES
from tg_base.runtime import running
from tg_schema import TgError

log = structlog.get_logger()

POLL_SECONDS = 0.2
"""Seconds between looks at the file. An edit is read when two looks see the same, so never half-written."""

Commit = Callable[[], None]
Prepare = Callable[[Config], Commit | Awaitable[Commit]]
"""Makes ready what an edited configuration needs, and returns what puts it in place.

It gets the configuration as it will be in force: what is `Followed` as the file says now, the rest as at the start.

The first part runs on another thread, or as a coroutine on the loop, and may raise a TgError, which refuses the whole
edit; the second runs on the loop, must not fail, and only after everybody's first part went well.
"""

_Signature = tuple[int, int, int] | None


class ConfigWatcher:
    """The configuration in force. Enter it to follow edits; nothing is followed for the built-in default.

    The log says which keys of an edit are in force (`config.in_force`), and which need a restart
    (`config.needs_restart`). A broken edit is refused: the log says why, with file and line, and what was in force
    stays.

    Args:
        file: what is read; None = the built-in default.
        poll: seconds between looks; an edit is in force after about twice that.
        services: those that a flow may bind.

    Attributes:
        config: what holds now: what is followed as the file says, the rest as it was at the start.

    Raises:
        BadRequest: the file cannot be read or is wrong; the message has file and line.
    """

    def __init__(
        self,
        file: Path | None = None,
        *,
        poll: float = POLL_SECONDS,
        services: tuple[type[ServiceConfig], ...] = SERVICES,
    ) -> None:
        self._file = file
        self._services = services
        self._poll = poll
        self._signature = _signature(file) if file else None
        read = read_config(file or DEFAULT_FILE, services)
        self.config = read if file else msgspec.structs.replace(read, source=None)
        self._followers: list[Prepare] = []
        self._refused = False
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._file is not None:
            await self._exit.enter_async_context(running(self._watch(self._file)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    @contextmanager
    def follow(self, prepare: Prepare) -> Iterator[None]:
        """Be told of every edit from now on, until the block is left."""
        self._followers.append(prepare)
        try:
            yield
        finally:
            self._followers.remove(prepare)

    async def _watch(self, file: Path) -> None:
        known = last = self._signature
        while True:
            await asyncio.sleep(self._poll)
            last, before = await asyncio.to_thread(_signature, file), last
            if last == before and last != known:
                known = last
                await self._reload(file)

    async def _reload(self, file: Path) -> None:
        try:
            edited = await asyncio.to_thread(read_config, file, self._services)
            changes = Changes(msgspec.structs.replace(self.config, source=edited.source), edited)
            commits = await self._prepare(changes.in_force)
        except TgError as error:
            self._refused = True
            log.error("config.refused", reason=error.message)
            return
        for commit in commits:
            commit()
        self.config = changes.in_force
        self._report(file, changes)

    async def _prepare(self, config: Config) -> list[Commit]:
        """What puts the edit in place for all who follow by then, be it only since it is being prepared."""
        commits: dict[Prepare, Commit] = {}
        while late := [prepare for prepare in self._followers if prepare not in commits]:
            for prepare in late:
                made = await asyncio.to_thread(prepare, config)
                commits[prepare] = await made if isinstance(made, Awaitable) else made
        return [commits[prepare] for prepare in self._followers]

    def _report(self, file: Path, changes: Changes[Config]) -> None:
        """What waits for a restart is told at every edit, until it was restarted or taken back."""
        if self._refused:
            log.info("config.recovered", file=str(file))
        elif not (changes.followed or changes.at_start):
            log.info("config.unchanged", file=str(file))
        self._refused = False
        if changes.followed:
            log.info("config.in_force", file=str(file), keys=changes.followed)
        if changes.at_start:
            reason = "this is read when a process starts; it needs a restart"
            log.warning("config.needs_restart", file=str(file), keys=changes.at_start, reason=reason)


def _signature(file: Path) -> _Signature:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
