"""`tg-pick` -> a running picker: it follows pools and loads, and answers Envoy."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tg_base.bus import open_bus
from tg_base.llm import open_pool
from tg_base.runtime import running
from tg_gateway.metrics_page import metrics_page
from tg_picker.core import Scheduler
from tg_picker.extproc.instance_picker import InstancePicker
from tg_picker.extproc.pick_config import PickConfig, override_config, read_pick_config
from tg_picker.extproc.picker_server import PickerServer, serve_picker
from tg_picker.page import INSTANCES_PATH
from tg_picker.picking import PoolPicker
from tg_picker.pools.adapter_loader import LOAD_PATH, Post
from tg_picker.pools.followed_pools import FollowedPools
from tg_picker.pools.pool_watcher import PoolWatcher
from tg_schema.topics import Topics


@asynccontextmanager
async def run_picker(
    file: Path, listen: str | None = None, http: str | None = None, bus: str | None = None
) -> AsyncIterator[str]:
    """Pick until the block is left. Yields a line that says where it listens.

    Args:
        file: the configuration.
        listen: "host:port", in place of the configured one.
        http: "host:port" of the page and the metrics, in place of the configured one.
        bus: the URL of the bus, in place of the configured one.

    Raises:
        BadRequest: the configuration is wrong; the message says where and what to do.
        Unavailable: nothing can listen at `http`.
    """
    config = override_config(read_pick_config(file), listen, http, bus)
    async with AsyncExitStack() as stack:
        watcher = await asyncio.to_thread(PoolWatcher, config.make_sources(file.parent))
        scheduler = Scheduler(config.policy, config.admission)
        picker = PoolPicker(
            "tg-pick",
            config.policy,
            scheduler,
            FollowedPools(watcher, scheduler, config.scrape, config.kv_events),
            limits=config.waiting,
            clock=asyncio.get_running_loop().time,
            adapter_source=config.adapter_source,
        )
        await _enter(picker, config, stack)
        decider = InstancePicker(
            picker,
            post=await _open_post(stack),
            fallbacks=config.fallbacks,
            takes_list=config.cluster == "override_host",
        )
        server = await stack.enter_async_context(serve_picker(decider, config.listen))
        await stack.enter_async_context(_publishing_health(watcher, server))
        shown = await _show(config, watcher, stack)
        count = len(watcher.view.endpoints)
        yield f"picking at {server.address} among {count} model server{'s' if count != 1 else ''}{shown}"


async def _enter(picker: PoolPicker, config: PickConfig, stack: AsyncExitStack) -> None:
    if config.bus is None:
        await stack.enter_async_context(picker)
    else:
        # The bus must outlive the picker, which publishes while it is left.
        shared = await stack.enter_async_context(open_bus(config.bus.url, config.bus.options))
        await stack.enter_async_context(picker)
        await picker.share(shared, Topics(config.bus.namespace))


async def _open_post(stack: AsyncExitStack) -> Post:
    """Sends the calls that make servers load adapters. Opening the first pool imports aiohttp, which takes a while."""
    pool = await asyncio.to_thread(open_pool, proxied=False)
    stack.push_async_callback(pool.aclose)
    headers = (("Content-Type", "application/json"),)
    return lambda address, body: pool.ask("POST", f"http://{address}/v1{LOAD_PATH}", headers, body)


async def _show(config: PickConfig, watcher: PoolWatcher, stack: AsyncExitStack) -> str:
    """Serve the page and the metrics. Returns the part of the ready line that names their address."""
    if not config.http:
        return ""
    host, _, port = config.http.rpartition(":")

    async def find_missing() -> tuple[str, ...]:
        return () if watcher.view.endpoints else ("no model server is known",)

    page = metrics_page(host.strip("[]"), int(port), find_hosts=lambda: config.hosts, find_missing=find_missing)
    found = await stack.enter_async_context(page)
    return f"; see http://{host}:{found}{INSTANCES_PATH}"


@asynccontextmanager
async def _publishing_health(watcher: PoolWatcher, server: PickerServer) -> AsyncIterator[None]:
    """Keep the health up to date: ready while there is a server."""
    changed = asyncio.Event()
    changed.set()

    async def publish_health() -> None:
        while True:
            await changed.wait()
            changed.clear()
            await server.set_ready(bool(watcher.view.endpoints))

    with watcher.follow(lambda _: changed.set()):
        async with running(publish_health()):
            yield
