"""What every test may ask for: the real broker, started once and only when somebody wants it."""

import contextlib
import gc
import os
import signal
from collections.abc import AsyncIterator, Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.broker_and_files import BrokerAndFiles, put_brokers_first, require_broker_named
from tests.pulsar_distribution import PulsarMissing, distribution
from tests.pulsar_or_skip import pulsar_or_skip
from tests.pulsar_server import PulsarServer
from tests.time_limit import TimeLimit
from tg_serve.structlog_import import import_structlog

# As tg_llama.demo_provider has it, also where a test has loaded NumPy before.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# As in tg-serve, before anything of ours logs: a traceback of rich, which a library brings, takes a second of CPU.
import_structlog()

from tg_base.bus import Bus, open_bus  # noqa: E402 - it imports structlog
from tg_base.telemetry import trace  # noqa: E402 - it imports structlog

# No property depends on how fast the machine is. `make test` tries the same examples each time, pytest alone new ones.
settings.register_profile(
    "tokengrid",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="TOKENGRID_REQUIRE_ALL" in os.environ,
)
settings.register_profile("quick", settings.get_profile("tokengrid"), max_examples=20)
settings.load_profile("tokengrid")


def pytest_configure(config: pytest.Config) -> None:
    """End what hangs; and let children be signalled, also by a run in a shell's background, or under `nohup`."""
    config.pluginmanager.register(TimeLimit(config), "time-limit")
    for ignored in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(ignored) is signal.SIG_IGN:
            # A program inherits what is ignored, not what is handled: its children may be signalled, this run goes on.
            signal.signal(ignored, lambda number, frame: None)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> BrokerAndFiles:
    """How `make test` divides the tests among its processes."""
    return BrokerAndFiles(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from what stays: all tests and their libraries, 600,000 objects.

    Looking through them while they come takes a fifth of the time; afterwards, each full collection would stop the loop
    under test for 0.3 s.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Leave no request that later tests would seem to work for.

    A test without a loop has no task of its own, so the span that it enters is that of all tests after it.
    """
    trace.enter(None)


@pytest.fixture(autouse=True, scope="module")
def no_garbage() -> Iterator[None]:
    """Leave no garbage of a whole file: what nobody has closed there fails its last test, not one of another file.

    No hook: after those of this file, pytest does not look any more what a test has left unclosed.
    """
    yield
    gc.collect()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the brokers, whose tests take longest."""
    put_brokers_first(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get the broker before the first test's clock starts; a download may take minutes."""
    require_broker_named(session.items)
    if not session.config.option.collectonly and any(item.get_closest_marker("connected") for item in session.items):
        with contextlib.suppress(PulsarMissing):
            distribution()


@pytest.fixture(scope="session")
def pulsar() -> Iterator[PulsarServer]:
    """A real Apache Pulsar: `service_url`, `admin_url`. Tests share it, so each takes topics of its own."""
    with pulsar_or_skip() as server:
        yield server


@pytest.fixture(params=["memory", pytest.param("pulsar", marks=pytest.mark.connected)])
def bus_url(request: pytest.FixtureRequest) -> str:
    """The URL of the bus under test, for a test that opens buses by itself."""
    url: str = "memory://" if request.param == "memory" else request.getfixturevalue("pulsar").service_url
    return url


@pytest.fixture
async def bus(bus_url: str) -> AsyncIterator[Bus]:
    """An open bus of every kind."""
    async with open_bus(bus_url) as opened:
        yield opened
