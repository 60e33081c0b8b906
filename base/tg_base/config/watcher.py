"""Configuration file -> running services: the active configuration, and its edits."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec
import structlog
from typing_extensions import override

from tg_base.config.changes import Changes
from tg_base.config.model import Config, ServiceConfig
from tg_base.config.reader import read_config, read_default
from tg_base.config.rules import faults
from tg_base.config.services import SERVICES
from tg_base.runtime import POLL_SECONDS, FileEdits, Watcher, running, translate_defects
from tg_schema import TgError
from tg_schema.errors import BadRequest, Internal

log = structlog.get_logger()

Commit = Callable[[], None]
Prepare = Callable[[Config], Commit | Awaitable[Commit]]
"""First phase of an edit: prepares a follower for the new configuration and returns the second phase, its commit.

It gets the configuration that will be active: `Followed` fields as edited, the others as at the start.

The first phase runs in another thread, or as a coroutine on the loop, and may raise a TgError, which rejects the whole
edit; so does any other exception, as a defect. The second phase runs on the loop after the first phases of all
followers have succeeded, and must not fail.
"""

_DEFECT = "a defect, whose traceback is above; the active configuration stays, and the next edit is read"


class ConfigWatcher(Watcher[Prepare]):
    """The active configuration. Enter it to follow edits of the file; the built-in default never changes.

    The log lists the keys of an edit that take effect (`config.in_force`), and those that need a restart
    (`config.needs_restart`). An invalid edit is rejected: the log has the reason with file and line, and the active
    configuration stays.

    Args:
        file: the configuration file; None = the built-in default.
        poll: polling interval in seconds; an edit takes effect after about two of them.
        services: the services that a flow may bind.
        completed: flows whose model the command line names.

    Attributes:
        config: the active configuration: `Followed` fields as in the file, the others as at the start.

    Raises:
        BadRequest: the file cannot be read or is invalid; the message has file and line.
    """

    def __init__(
        self,
        file: Path | None = None,
        *,
        poll: float = POLL_SECONDS,
        services: tuple[type[ServiceConfig], ...] = SERVICES,
        completed: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self._file = file
        self._read = partial(read_config, services=services, completed=completed)
        # Looks before the file is read: an edit in between is noticed by the first poll instead of being lost.
        self._edits = FileEdits((file,), poll) if file else None
        self.config = self._read(file) if file else read_default(services)
        self._refused = False

    @override
    async def _start(self, stack: AsyncExitStack) -> None:
        if self._file is not None and self._edits is not None:
            await stack.enter_async_context(running(self._watch(self._file, self._edits)))

    async def _watch(self, file: Path, edits: FileEdits) -> None:
        while True:
            await edits.wait()
            await self._reload(file)

    async def _reload(self, file: Path) -> None:
        try:
            # One defect must not end the watch: a key that is revoked later would go on working.
            with translate_defects(Internal, _DEFECT, "config.defect", log):
                edited = await asyncio.to_thread(self._read, file)
                # The new positions, even if no value has changed: later errors name the lines of the file as it is.
                changes = Changes(msgspec.structs.replace(self.config, source=edited.source), edited)
                for fault in faults(changes.in_force):
                    raise BadRequest(f"{fault.message} (what needs a restart counts as it was at the start)")
                # Two phases: an edit takes effect in all followers or in none, and commits cannot fail halfway.
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
        """The commits of all followers, including those that register while the edit is being prepared."""
        commits: dict[Prepare, Commit] = {}
        while late := [prepare for prepare in self._followers if prepare not in commits]:
            for prepare in late:
                made = await asyncio.to_thread(prepare, config)
                commits[prepare] = await made if isinstance(made, Awaitable) else made
        return [commits[prepare] for prepare in self._followers]

    def _report(self, file: Path, changes: Changes[Config]) -> None:
        """Log an edit. Values that need a restart are logged again at each edit, until restart or reversal."""
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
