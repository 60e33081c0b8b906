"""Processes that serve alike: started, replaced, restarted and ended; real processes with nothing to serve."""

import asyncio
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.fakes.small_worker import serve
from tests.until import until
from tg_base.server import Crew, Work, Workers
from tg_base.server.worker_server import WorkerServer
from tg_schema.errors import Unavailable

PATIENCE = 60.0


def crew(folder: Path, count: int = 1) -> Crew:
    return Crew(Work(serve, str(folder)), count, "127.0.0.1", 0, 0.1, metrics_host="127.0.0.1")


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
        async with Workers(crew(tmp_path, 2)).serve():
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
            await WorkerServer.start(crew(tmp_path).work)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_all_end_with_the_block(tmp_path: Path, one_core: None) -> None:
    with structlog.testing.capture_logs() as log:
        async with Workers(crew(tmp_path, 2)).serve() as line:
            assert line == "ready: 1 sockets"
            (serving,) = lines(log, "workers.serving")
            assert all(map(alive, serving["pids"]))
            assert [(line["workers"], line["cores"]) for line in lines(log, "workers.more_than_cores")] == [(2, 1)]
    assert not any(map(alive, serving["pids"]))


async def test_one_that_ends_again_and_again_ends_all(tmp_path: Path) -> None:
    """A successor that serves counts; the next ones cannot, and their reason is told."""

    async def serve_until_hopeless(log: list[structlog.typing.EventDict]) -> None:
        async with asyncio.timeout(PATIENCE), Workers(crew(tmp_path), pauses=(0.0, 0.0, 0.0)).serve():
            os.kill(lines(log, "workers.serving")[0]["pids"][0], signal.SIGKILL)
            await until(lambda: lines(log, "worker.replaced"))
            (tmp_path / "broken").touch()
            os.kill(lines(log, "worker.replaced")[0]["pid"], signal.SIGKILL)
            await asyncio.Event().wait()

    with structlog.testing.capture_logs() as log, pytest.raises(Unavailable, match="has no room"):
        await serve_until_hopeless(log)
    assert len(lines(log, "worker.not_started")) == 2


async def test_a_restart_that_fails_leaves_the_old_ones(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as log:
        workers = Workers(crew(tmp_path))
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
