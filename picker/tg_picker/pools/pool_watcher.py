"""Resource files, endpoint files and DNS -> the current pools, updated while the process runs."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import structlog
from typing_extensions import override

from tg_base.config import Findings, FirstFinding
from tg_base.runtime import POLL_SECONDS, FileEdits, Watcher, running, translate_defects
from tg_picker.pools.catalogue import Catalogue
from tg_picker.pools.catalogue_builder import build_catalogue, check_protocols, find_empty
from tg_picker.pools.endpoint_file import read_endpoint_file
from tg_picker.pools.host import RESOLVE_SECONDS, Host
from tg_picker.pools.kinds import Spec
from tg_picker.pools.pool_sources import PoolSources
from tg_picker.pools.pool_view import PoolView, make_view
from tg_picker.pools.resource import Resource, read_resources
from tg_schema import TgError
from tg_schema.errors import BadRequest, Internal

log = structlog.get_logger()

Follower = Callable[[PoolView], None]
"""Called with each new view, on the loop. It must not fail and must not wait."""

_DEFECT = "a defect, whose traceback is above; the pools stay as they are, and the next edit is read"


class PoolWatcher(Watcher[Follower]):
    """The pools. Enter it to follow files and names. An edit takes effect within a second, in all files or in none.

    A wrong edit is refused: the log has the reason with file and line (`pools.refused`), and the pools stay. If a name
    cannot be resolved, its last addresses stay (`pools.unresolved`).

    Args:
        sources: the sources to read.
        poll: seconds between two looks at the files.
        resolve: seconds between two resolutions of a name.
        findings: collects all errors of the files at the start, for a check; None: the first error is raised.

    Attributes:
        view: the current pools.

    Raises:
        BadRequest: a file cannot be read or is wrong.
    """

    def __init__(
        self,
        sources: PoolSources,
        *,
        poll: float = POLL_SECONDS,
        resolve: float = RESOLVE_SECONDS,
        findings: Findings | None = None,
    ) -> None:
        super().__init__()
        self._sources = sources
        self._resolve = resolve
        self._edits = FileEdits((*sources.resources, *sources.endpoint_files), poll)
        self._catalogue, self._hosts = _read(sources, findings or FirstFinding())
        # Keyed by index: two pools may use the same name, and each selects its hosts by its own labels.
        self._names = dict(enumerate(sources.names))
        self._resolved: dict[int, tuple[Host, ...]] = {}
        self._unresolved: set[int] = set()
        self._refused = False
        self.view = self._make_view()

    @property
    def unresolved(self) -> tuple[str, ...]:
        """The names that had no address at the last resolution."""
        return tuple(sorted({self._names[at].address for at in self._unresolved}))

    @override
    async def _start(self, stack: AsyncExitStack) -> None:
        await asyncio.gather(*map(self._look_up, self._names))
        if self._sources.resources or self._sources.endpoint_files:
            await stack.enter_async_context(running(self._watch()))
        for at in self._names:
            await stack.enter_async_context(running(self._follow_name(at)))

    async def _watch(self) -> None:
        while True:
            await self._edits.wait()
            try:
                # As for the configuration: a defect must not end the watch.
                with translate_defects(Internal, _DEFECT, "pools.defect", log):
                    self._catalogue, self._hosts = await asyncio.to_thread(_read, self._sources, FirstFinding())
            except TgError as error:
                self._refused = True
                log.error("pools.refused", reason=error.message)
                continue
            self._publish(recovered=self._refused)
            self._refused = False

    async def _follow_name(self, at: int) -> None:
        while True:
            await asyncio.sleep(self._resolve)
            await self._look_up(at)

    async def _look_up(self, at: int) -> None:
        try:
            hosts = await self._names[at].resolve()
        except OSError as error:
            if at not in self._unresolved:
                log.error("pools.unresolved", name=self._names[at].address, reason=type(error).__name__)
            self._unresolved.add(at)
            return
        self._unresolved.discard(at)
        if hosts != self._resolved.get(at):
            self._resolved[at] = hosts
            self._publish(recovered=False)

    def _publish(self, *, recovered: bool) -> None:
        view = self._make_view()
        changed, self.view = view != self.view, view
        if not changed and not recovered:
            return
        endpoints = {pool: len(members) for pool, members in view.members.items()}
        log.info("pools.in_force", endpoints=endpoints, recovered=recovered)
        for follower in self._followers:
            follower(view)

    def _make_view(self) -> PoolView:
        resolved = (host for at in self._names for host in self._resolved.get(at, ()))
        return make_view(self._catalogue, (*self._hosts, *resolved))


def _read(sources: PoolSources, findings: Findings) -> tuple[Catalogue, tuple[Host, ...]]:
    """Read the files. An error in one does not hide errors in others. If there are none, all are checked together."""
    resources: list[Resource[Spec]] = []
    hosts = [*sources.hosts]
    for file in sources.resources:
        with findings.collect():
            resources += read_resources(file)
    for file in sources.endpoint_files:
        with findings.collect():
            hosts += read_endpoint_file(file, ip_only=sources.ip_only)
    catalogue = sources.catalogue
    with findings.collect():
        if sources.resources:
            catalogue = build_catalogue(resources)
        if not findings.sentences:
            _check(sources, resources, catalogue, (*hosts, *sources.names))
    return catalogue, tuple(hosts)


def _check(
    sources: PoolSources, resources: Sequence[Resource[Spec]], catalogue: Catalogue, hosts: Sequence[Host]
) -> None:
    if sources.http1_only:
        check_protocols(resources)
    if not catalogue.pools:
        # A file that is empty for a moment, while it is rewritten, must not remove all pools.
        named = ", ".join(map(str, sources.resources))
        raise BadRequest(f"{named}, line 1: there is no InferencePool in the resources; add one")
    for sentence in find_empty(resources, [host.labels for host in hosts]):
        log.warning("pools.empty", reason=sentence)
    if sources.ip_only and (route := catalogue.hedged_route):
        sentence = f"the route {route} has a hedging delay, but Envoy calls the servers"
        raise BadRequest(f"{sentence}; remove it, and write a hedge_policy into Envoy's route")
    for host in hosts:
        if not host.ports and not any(pool.ports and pool.selects(host.labels) for pool in catalogue.pools.values()):
            raise BadRequest(f"{host.address} has no port; name one, or an InferencePool that selects it")
