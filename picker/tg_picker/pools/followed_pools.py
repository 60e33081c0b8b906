"""Pools as they change, and servers' loads -> scheduler: what a picker and a pool provider have in common."""

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
    """Keeps a scheduler at the pools as they are while it is entered, and the watcher with it.

    What is known of a server that has left is dropped, and so is what a late answer reports of it.

    Args:
        watcher: the pools.
        scheduler: is told.
        scrape: how the servers' pages of load are read; None = they are not.
        kv_events: where the servers tell of their KV caches; None = nobody listens.
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
        self._scraper = None if scrape is None else Scraper(scheduler.observe, scrape, self._welcome)
        self._subscriber = None if kv_events is None else KvSubscriber(scheduler, kv_events)
        self._known: dict[str, Endpoint] = {}

    @override
    async def _start(self, stack: AsyncExitStack) -> None:
        if self._scraper is not None:
            await stack.enter_async_context(self._scraper)
        if self._subscriber is not None:
            await stack.enter_async_context(self._subscriber)
        # Followed before the watcher runs, so that no view is missed.
        stack.enter_context(self._watcher.follow(self._follow))
        await stack.enter_async_context(self._watcher)
        self._follow(self.view)

    @property
    def view(self) -> PoolView:
        """The pools now."""
        return self._watcher.view

    def find(self, address: str) -> Endpoint | None:
        """The server at an address; None: no pool has one there."""
        return self._known.get(address)

    def follow(self, follower: Follower) -> AbstractContextManager[None]:
        """Tell every new view from now on, once the scheduler knows of it, until the block is left."""
        return self._watcher.follow(follower)

    @property
    def unreachable(self) -> frozenset[str]:
        """The addresses that could not be reached when their load was looked at last."""
        return frozenset() if self._scraper is None else self._scraper.unreachable

    def find_eligible(self, endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
        """The servers that can be reached; if none can, those that take connections, be it that they hang."""
        scraper = self._scraper
        if scraper is None or not scraper.unreachable:
            return endpoints
        reachable = [each for each in endpoints if each.address not in scraper.unreachable]
        return reachable or [each for each in endpoints if each.address not in scraper.refusing]

    @property
    def failing(self) -> dict[str, str]:
        """The addresses whose load cannot be read, and why."""
        return {} if self._scraper is None else self._scraper.failing

    def read_load(self, endpoint: Endpoint, header: str, now: float) -> None:
        """Tell the scheduler what the load header of an answer says; one that says nothing is ignored.

        Args:
            endpoint: who answered.
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
        if self._scraper is not None:
            self._scraper.update(view.endpoints)
        if self._subscriber is not None:
            self._subscriber.update(view.endpoints)
