"""URL -> bus: the only place that knows all drivers. A driver is imported only when its bus is opened."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import SplitResult, urlsplit

from tg_base.bus.core import Bus, BusOptions
from tg_schema.errors import BadRequest, Unavailable

_NO_SUCH_BUS = "no such bus: write memory://, pulsar://host:port or pulsar+ssl://host:port"

_NO_PULSAR = 'the bus "pulsar://" needs a package that is not installed; run: pip install "tokengrid-base[pulsar]"'


@asynccontextmanager
async def open_bus(url: str, options: BusOptions | None = None) -> AsyncIterator[Bus]:
    """Open the bus that the URL names, and close it on leaving.

    `memory://` is a new bus for each call, shared through the object. `pulsar://host:port` and
    `pulsar+ssl://host:port` are an Apache Pulsar broker, which need not be running yet.

    Raises:
        BadRequest: the URL names no bus, or a secret or file that the options name is missing.
        Unavailable: the client of Apache Pulsar is not installed; the message has the command that installs it.
    """
    bus = _bus_of(url, options or BusOptions())
    try:
        yield bus
    finally:
        await bus.aclose()


def _bus_of(url: str, options: BusOptions) -> Bus:
    if url == "memory://":
        from tg_base.bus.memory import MemoryBus  # noqa: PLC0415 - a driver is imported only when its bus is opened

        return MemoryBus()
    parts = _parts_of(url)
    if parts.scheme in {"pulsar", "pulsar+ssl"} and parts.hostname:
        return _open_pulsar(url, options)
    raise BadRequest(_NO_SUCH_BUS).at("url")


def _open_pulsar(url: str, options: BusOptions) -> Bus:
    try:
        from tg_base.bus.pulsar import PulsarBus  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if (error.name or "").lstrip("_").partition(".")[0] != "pulsar":
            raise
        raise Unavailable(_NO_PULSAR) from None
    return PulsarBus(url, options)


def _parts_of(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise BadRequest(_NO_SUCH_BUS).at("url") from None
    return parts
