"""Changing pools and servers' loads -> scheduler: the code that a picker and the provider `pool` share."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, AsyncExitStack

from typing_extensions import override

from tg_base.runtime import Entered
from tg_picker.core import Endpoint, LoadReport, Scheduler
from tg_picker.pools.kv_subscriber import KvEventOptions, KvSubscriber
from tg_picker.pools.load_header import merge_reports, read_load_header
from tg_picker.pools.pool_view import PoolView
from tg_picker.pools.pool_watcher import Follower, PoolWatcher
from tg_picker.pools.scraper import ScrapeOptions, Scraper


class FollowedPools(Entered):
    """Keeps a scheduler up to date with the pools while it is entered, and runs the watcher meanwhile.

    When a server leaves, everything known about it is dropped, and so are reports of it that arrive later.

    Args:
        watcher: the watcher of the pools.
        scheduler: the scheduler that is kept up to date.
        scrape: how the servers' load pages are read; None = they are not read.
        kv_events: where the servers report their KV caches; None = the reports are not read.
    """

    def __init__(
        self,
        watcher: PoolWatcher,
        scheduler: Scheduler,
        scrape: ScrapeOptions | None,
        kv_events: KvEventOptions | None = None,
    ) -> None:
        super().__init__()
        self._watcher = watcher
        self._scheduler = scheduler
        # Without options the scraper is not entered, and considers every server reachable.
        self._scraper = Scraper(scheduler.observe, scrape, self._welcome)
        self._readers: list[Scraper | KvSubscriber] = [] if scrape is None else [self._scraper]
        if kv_events is not None:
            self._readers.append(KvSubscriber(scheduler, kv_events))
        self._known: dict[str, Endpoint] = {}

    @override
    async def _start(self, stack: AsyncExitStack) -> None:
        for reader in self._readers:
            await stack.enter_async_context(reader)
        # Follow the watcher before it runs, so that no view is missed.
        stack.enter_context(self._watcher.follow(self._follow))
        await stack.enter_async_context(self._watcher)
        self._follow(self.view)

    @property
    def view(self) -> PoolView:
        """The current pools."""
        return self._watcher.view

    def find(self, address: str) -> Endpoint | None:
        """The server at an address; None: no pool has one there."""
        return self._known.get(address)

    def follow(self, follower: Follower) -> AbstractContextManager[None]:
        """Pass every new view to `follower`, after the scheduler has it, until the block is left."""
        return self._watcher.follow(follower)

    @property
    def unreachable(self) -> frozenset[str]:
        """The addresses that could not be reached at the last scrape."""
        return self._scraper.unreachable

    def find_eligible(self, endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
        """The servers that can be reached; if none can, those that at least accept connections."""
        scraper = self._scraper
        if not scraper.unreachable:
            return endpoints
        reachable = [each for each in endpoints if each.address not in scraper.unreachable]
        return reachable or [each for each in endpoints if each.address not in scraper.refusing]

    @property
    def failing(self) -> dict[str, str]:
        """The addresses whose load cannot be read, each with the reason."""
        return self._scraper.failing

    def read_load(self, endpoint: Endpoint, header: str, now: float) -> None:
        """Pass the load header of an answer to the scheduler. A header without a load is ignored.

        Args:
            endpoint: the server that answered.
            header: the header's value; any text.
            now: seconds on the scheduler's clock.
        """
        report = read_load_header(header, now)
        if report is not None and endpoint.address in self._known:
            last = self._scheduler.server(endpoint).report
            self._scheduler.observe(endpoint, merge_reports(last, report))

    def _welcome(self, endpoint: Endpoint, report: LoadReport | None, refused: bool) -> None:
        # If no server was reachable, that alone may explain the failed adapter request.
        self._scheduler.missing.forget(endpoint.address)
        began = None if report is None else report.started_at
        # If connections were refused and the report has no start time, the server's process has most likely restarted.
        if refused and (began is None or began != self._scheduler.server(endpoint).started_at):
            self._scheduler.restarted(endpoint)

    def _follow(self, view: PoolView) -> None:
        self._known = {endpoint.address: endpoint for endpoint in view.endpoints}
        self._scheduler.retain(view.endpoints)
        for reader in self._readers:
            reader.update(view.endpoints)
