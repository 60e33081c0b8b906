"""Processes that serve alike: started, replaced, restarted and ended; real processes with nothing to serve."""

import asyncio
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import structlog

from tests.fakes.small_worker import serve
from tests.until import until
from tg_base.server import Work, Workers, WorkerSettings
from tg_base.server.worker_server import WorkerServer
from tg_schema.errors import Unavailable

PATIENCE = 60.0


def settings(folder: Path, count: int = 1) -> WorkerSettings:
    return WorkerSettings(Work(serve, str(folder)), count, "127.0.0.1", 0, 0.1, metrics_host="127.0.0.1")


def lines(log: list[structlog.typing.EventDict], event: str) -> list[structlog.typing.EventDict]:
    return [line for line in log if line["event"] == event]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_who_cannot_serve_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    with pytest.raises(Unavailable, match=r"^worker 0 has no room$"):
        async with Workers(settings(tmp_path, 2)).serve():
            raise AssertionError


@pytest.fixture
def one_core() -> Iterator[None]:
    """This process and its children may use no other."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


async def test_one_that_cannot_even_be_started_is_told(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = os.dup(0)
    os.close(highest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
    try:
        with pytest.raises(Unavailable, match="raise the limits"):
            await WorkerServer.start(settings(tmp_path).work)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_all_end_with_the_block(tmp_path: Path, one_core: None) -> None:
    with structlog.testing.capture_logs() as log:
        async with Workers(settings(tmp_path, 2)).serve() as line:
            assert line == "ready: 1 sockets"
            (serving,) = lines(log, "workers.serving")
            assert all(map(alive, serving["pids"]))
            assert [(line["workers"], line["cores"]) for line in lines(log, "workers.more_than_cores")] == [(2, 1)]
    assert not any(map(alive, serving["pids"]))


async def test_one_that_ends_again_and_again_ends_all(tmp_path: Path) -> None:
    """A successor that serves counts; the next ones cannot, and their reason is told."""

    async def serve_until_hopeless(log: list[structlog.typing.EventDict]) -> None:
        async with asyncio.timeout(PATIENCE), Workers(settings(tmp_path), pauses=(0.0, 0.0, 0.0)).serve():
            os.kill(lines(log, "workers.serving")[0]["pids"][0], signal.SIGKILL)
            await until(lambda: lines(log, "worker.replaced"))
            (tmp_path / "broken").touch()
            os.kill(lines(log, "worker.replaced")[0]["pid"], signal.SIGKILL)
            await asyncio.Event().wait()

    with structlog.testing.capture_logs() as log, pytest.raises(Unavailable, match="has no room"):
        await serve_until_hopeless(log)
    assert len(lines(log, "worker.not_started")) == 2


async def test_one_that_somebody_ends_is_replaced_at_once_and_may_finish(tmp_path: Path) -> None:
    """By SIGTERM, and once more, as where a supervisor tells all processes and the parent does too."""
    (tmp_path / "busy").touch()
    with structlog.testing.capture_logs() as log:
        workers = Workers(settings(tmp_path, 2), pauses=(0.0,))
        async with asyncio.timeout(PATIENCE), workers.serve():
            first, second = lines(log, "workers.serving")[0]["pids"]
            os.kill(first, signal.SIGTERM)
            await until(lambda: lines(log, "worker.replaced"))
            assert [line["pid"] for line in lines(log, "worker.leaving")] == [first]
            for pid in (first, first, second):
                os.kill(pid, signal.SIGTERM)
            await until(lambda: len(lines(log, "worker.replaced")) == 2)
            assert alive(first)
            assert alive(second)
            (tmp_path / "busy").unlink()
            await until(lambda: not alive(first) and not alive(second))
    assert not lines(log, "worker.ended")


async def test_one_whose_parent_dies_while_it_ends_may_finish(tmp_path: Path) -> None:
    (tmp_path / "busy").touch()
    worker = await WorkerServer.start(settings(tmp_path).work)
    worker.drain()
    async with asyncio.timeout(PATIENCE):
        assert await worker.left()
        # As the end of its parent does.
        cast("asyncio.StreamWriter", worker._process.stdin).close()
        worker.drain()
        (tmp_path / "busy").unlink()
        assert await worker.ended() == 0


async def test_all_are_killed_with_their_parent(tmp_path: Path) -> None:
    (tmp_path / "busy").touch()
    with structlog.testing.capture_logs() as log:
        workers = Workers(settings(tmp_path))
        async with asyncio.timeout(PATIENCE), workers.serve():
            workers.kill()
            await until(lambda: lines(log, "worker.replaced"))
            (tmp_path / "busy").unlink()
    assert [line["status"] for line in lines(log, "worker.ended")] == [-signal.SIGKILL]


async def test_what_cannot_be_replaced_ends_nobody_who_serves(tmp_path: Path) -> None:
    """As while the configuration has an error: the others serve, and it comes back when that is repaired."""
    with structlog.testing.capture_logs() as log:
        async with asyncio.timeout(PATIENCE), Workers(settings(tmp_path, 2), pauses=(0.0, 0.0)).serve():
            first, second = lines(log, "workers.serving")[0]["pids"]
            (tmp_path / "broken").touch()
            os.kill(first, signal.SIGKILL)
            await until(lambda: len(lines(log, "worker.not_started")) > 2)
            assert alive(second)
            (tmp_path / "broken").unlink()
            await until(lambda: lines(log, "worker.replaced"))


async def test_a_restart_that_fails_leaves_the_old_ones(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as log:
        workers = Workers(settings(tmp_path))
        async with workers.serve():
            (pid,) = lines(log, "workers.serving")[0]["pids"]
            (tmp_path / "broken").touch()
            workers.restart()
            await until(lambda: lines(log, "worker.not_restarted"))
            assert alive(pid)
            (tmp_path / "broken").unlink()
            workers.restart()
            await until(lambda: lines(log, "worker.restarted"))
            assert not alive(pid)
            assert alive(lines(log, "worker.restarted")[0]["pid"])
