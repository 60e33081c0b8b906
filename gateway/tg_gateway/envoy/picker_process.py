"""`tg-pick` -> a running picker: pools and loads are followed, and Envoy is answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tg_base.instances import Endpoint, Scheduler
from tg_base.pools import PoolView, merge_reports, read_load_header
from tg_base.pools.pool_watcher import PoolWatcher
from tg_base.pools.scraper import Scraper
from tg_base.runtime import running
from tg_gateway.envoy.instance_picker import InstancePicker
from tg_gateway.envoy.pick_config import read_pick_config
from tg_gateway.envoy.picker_server import PickerServer, serve_picker


@asynccontextmanager
async def run_picker(file: Path, listen: str | None = None) -> AsyncIterator[str]:
    """Pick until the block is left. Yields a line that says where.

    Args:
        file: the configuration.
        listen: "host:port", in place of the configured one.

    Raises:
        BadRequest: the configuration is wrong; the message says where and what to do.
    """
    config = read_pick_config(file)
    async with AsyncExitStack() as stack:
        watcher = await asyncio.to_thread(PoolWatcher, config.make_sources(file.parent))
        await stack.enter_async_context(watcher)
        scheduler = Scheduler(config.policy, config.admission)
        scraper = await stack.enter_async_context(Scraper(scheduler.observe, config.scrape))
        clock = asyncio.get_running_loop().time

        def read_load(endpoint: Endpoint, told: str) -> None:
            report = read_load_header(told, clock())
            if report is not None:
                scheduler.observe(endpoint, merge_reports(scheduler.server(endpoint).report, report))

        picker = InstancePicker(
            scheduler,
            lambda: watcher.view,
            clock,
            read_load=read_load,
            unreachable=lambda: scraper.unreachable,
            fallbacks=config.fallbacks,
        )
        server = await stack.enter_async_context(serve_picker(picker, listen or config.listen))
        await stack.enter_async_context(_following(watcher, scheduler, scraper, server))
        yield f"picking at {server.address} among {len(watcher.view.endpoints)} model servers"


@asynccontextmanager
async def _following(
    watcher: PoolWatcher, scheduler: Scheduler, scraper: Scraper, server: PickerServer
) -> AsyncIterator[None]:
    """Keep scheduler, scraper and health at the pools as they are now."""
    changed = asyncio.Event()

    def follow(view: PoolView) -> None:
        scraper.update(view.endpoints)
        scheduler.retain(view.endpoints)
        changed.set()

    async def tell_health() -> None:
        while True:
            await changed.wait()
            changed.clear()
            await server.set_ready(bool(watcher.view.endpoints))

    follow(watcher.view)
    with watcher.follow(follow):
        async with running(tell_health()):
            yield
