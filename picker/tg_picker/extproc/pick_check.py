"""`tg-pick --check` -> the servers to pick from, or all errors: like a start, but without listening."""

import asyncio
from pathlib import Path

from tg_base.bus import open_bus
from tg_base.config import BusConfig, Findings
from tg_picker.core import Endpoint
from tg_picker.extproc.pick_config import PickConfig, override_config, read_pick_config
from tg_picker.pools import Catalogue, PoolView
from tg_picker.pools.pool_watcher import PoolWatcher
from tg_schema.errors import BadRequest, Timeout

PING_SECONDS = 10.0
"""Timeout of a ping to the bus, in seconds."""


async def check_picker(
    file: Path, listen: str | None = None, http: str | None = None, bus: str | None = None
) -> tuple[str, list[str]]:
    """Read the configuration and every file that it names, resolve the servers' names, and ping the bus.

    Args:
        file: the configuration.
        listen: "host:port" of the gRPC service, in place of the configured one.
        http: "host:port" of the page and the metrics, in place of the configured one.
        bus: the URL of the bus, in place of the configured one.

    Returns:
        A description of what would run, or "" if there are errors; and all errors, each with its position.
    """
    findings = Findings()
    described = ""
    with findings.collect():
        config = override_config(read_pick_config(file), listen, http, bus)
        watcher = await asyncio.to_thread(PoolWatcher, config.make_sources(file.parent), findings=findings)
        are_readable = not findings.sentences
        if config.bus is not None:
            with findings.collect():
                await _ping(config.bus)
        if are_readable:
            async with watcher:
                for name in watcher.unresolved:
                    findings.add(BadRequest(f"{name} has no address; correct it in names, or add it to your DNS"))
                described = _describe(file, config, watcher.view)
    return "" if findings.sentences else described, findings.sentences


async def _ping(config: BusConfig) -> None:
    try:
        async with open_bus(config.url, config.options) as bus, asyncio.timeout(PING_SECONDS):
            await bus.ping()
    except TimeoutError:
        raise Timeout(
            f"{config.url} does not answer within {PING_SECONDS:g} s; check the URL, and the broker"
        ) from None


def _describe(file: Path, config: PickConfig, view: PoolView) -> str:
    count = len(view.endpoints)
    told = [f"picks at {config.listen}", f"by the policy {config.policy}"]
    if config.http:
        told.append(f"with a page at {config.http}")
    if config.bus is not None:
        told.append(f"together with others on {config.bus.url}, which answers")
    servers = f"among {count} model server{'s' if count != 1 else ''}"
    lines = [f"ok: {file} {' '.join((*told, servers))}"]
    for pool, members in view.members.items():
        models = ", ".join(sorted(view.served.get(pool, ()))) or "any"
        lines.append(f"pool {pool}: {', '.join(map(_name, members)) or 'no server'}; base models: {models}")
    lines += [_describe_name(view.catalogue, name) for name in view.catalogue.models]
    return "\n".join(lines)


def _name(server: Endpoint) -> str:
    return server.address if server.name in {"", server.address} else f"{server.name} at {server.address}"


def _describe_name(catalogue: Catalogue, name: str) -> str:
    case = catalogue.cases.get(name)
    pools = catalogue.find_rewriting(name) if case is None else [pool for pool, _ in case.pools]
    leads = f"model {name}: pool {' or '.join(pools)}"
    if case is None:
        return f"{leads}, rewritten"
    kind = ", a LoRA adapter" if case.is_adapter else ""
    return f"{leads}, route {case.route}{kind}, priority {case.priority}"
