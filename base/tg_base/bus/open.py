"""URL -> bus: the driver is the entry point of the URL's scheme, and is imported only when its bus is opened."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint
from typing import Final

import structlog

from tg_base.bus.core import Bus, BusOptions
from tg_base.runtime import explaining_absence, find_entry_point, translate_defects
from tg_schema.errors import BadRequest, Internal, NotFound

log = structlog.get_logger()

BUSES: Final = "tokengrid.buses"
"""The group of entry points. Its names are schemes; a value makes a `Bus` of a URL and `BusOptions`."""


def find_bus(url: str, *option: str) -> EntryPoint:
    """The driver of a URL, not imported yet. The driver interprets a suffix of the scheme, as in `pulsar+ssl`.

    Raises:
        BadRequest: at `option`; no installed package has such a bus. The message has all that are installed.
    """
    try:
        # Name only the scheme in the error: the rest of the URL may hold a password.
        return find_entry_point(BUSES, url.partition(":")[0].partition("+")[0].lower(), "bus", "")
    except NotFound as error:
        raise BadRequest(f"{error.message}; write memory:// or pulsar://host:port, for instance").at(*option) from None


@asynccontextmanager
async def open_bus(url: str, options: BusOptions | None = None) -> AsyncIterator[Bus]:
    """Open the bus that the URL names, and close it on leaving.

    `memory://` is a new bus for each call, shared through the object. `pulsar://host:port` and
    `pulsar+ssl://host:port` are an Apache Pulsar broker, which need not be running yet. Other packages bring other
    buses.

    Raises:
        BadRequest: the URL names no bus, or a secret or file that the options name is missing.
        Unavailable: a package that the bus needs is not installed; the message has the command that installs it.
        Internal: the bus has a defect; the log has its traceback.
    """
    point = find_bus(url, "url")
    owner = f'the bus "{point.name}://"'
    with (
        translate_defects(Internal, f"{owner} has a defect; the log says which", "bus.defect", log),
        explaining_absence(owner, point, "url"),
    ):
        bus: Bus = point.load()(url, options or BusOptions())
    try:
        yield bus
    finally:
        await bus.aclose()
