"""Pools that are followed: what a server tells after it has left its pool counts for nothing."""

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import structlog

from tests.fakes.kv_publisher import kv_publisher
from tests.unit.test_config_edits import replace, seen
from tests.until import until
from tg_picker.core import LoadReport, Scheduler
from tg_picker.pools import PoolSources
from tg_picker.pools.followed_pools import FollowedPools
from tg_picker.pools.kv_subscriber import KvEventOptions
from tg_picker.pools.pool_watcher import PoolWatcher

BUSY = "TEXT named_metrics.num_requests_waiting=7"


def endpoint_file(*ports: int) -> str:
    return "endpoints:\n" + "".join(f"- {{name: s{port}, address: 127.0.0.1, port: '{port}'}}\n" for port in ports)


async def test_events_of_a_server_count_while_it_is_in_the_pool(tmp_path: Path) -> None:
    async with kv_publisher() as server:
        file, scheduler = tmp_path / "endpoints.yaml", Scheduler()
        file.write_text(endpoint_file(1, 2), "utf-8")
        watcher = PoolWatcher(PoolSources(endpoint_files=(file,)), poll=0.01)
        options = KvEventOptions(port=server.port, replay_port=server.replay_port)
        async with FollowedPools(watcher, scheduler, None, options) as pools:
            await server.tell(server.stored(range(640)))
            await until(lambda: all(len(scheduler.server(each).prefixes) == 10 for each in pools.view.endpoints))
            replace(file, endpoint_file(1))
            await until(lambda: server.followers == 1)
            assert [len(each.prefixes) for each in scheduler.servers] == [10]


async def test_a_late_answer_of_a_server_that_left_brings_nothing_of_it_back(tmp_path: Path) -> None:
    file, scheduler = tmp_path / "endpoints.yaml", Scheduler()
    file.write_text(endpoint_file(1, 2), "utf-8")
    watcher = PoolWatcher(PoolSources(endpoint_files=(file,)), poll=0.01)
    logs: list[MutableMapping[str, Any]]
    with structlog.testing.capture_logs() as logs:
        async with FollowedPools(watcher, scheduler, None) as pools:
            stays, leaves = pools.view.endpoints
            for each in (stays, leaves):
                pools.read_load(each, BUSY, 1.0)
                assert scheduler.server(each).queued == 7
            replace(file, endpoint_file(1))
            await seen(logs, "pools.in_force")
            pools.read_load(leaves, BUSY, 2.0)
            scheduler.forget_adapter(leaves, "x", 1.0)
            assert [*scheduler._servers] == [stays.address]
            pools.read_load(stays, "TEXT named_metrics.kv_cache_usage_perc=0.5", 2.0)
            assert (scheduler.server(stays).queued, scheduler.server(stays).kv_usage) == (7, 0.5)
            scheduler.forget_adapter(stays, "x", 1.0)
            assert scheduler.missing.without((stays, leaves), "x") == [leaves]
            # It was away, and has come back.
            pools._welcome(stays, None, False)
            assert scheduler.missing.without((stays, leaves), "x") == (stays, leaves)
            pools.read_load(stays, "no load", 2.0)
            # It was a restart unless only the way to it broke: nobody took connections, and no equal start is told.
            scheduler.observe(stays, LoadReport(2.0, started_at=5.0))
            for report, refused, has in (
                (LoadReport(3.0, started_at=5.0), True, True),
                (None, False, True),
                (LoadReport(3.0, started_at=4.0), True, False),
                (LoadReport(3.0), True, False),
                (None, True, False),
            ):
                scheduler.server(stays).adapters.use("x", 1.0, {})
                pools._welcome(stays, report, refused)
                assert bool(len(scheduler.server(stays).adapters)) is has, report
            assert pools.unreachable == frozenset()
