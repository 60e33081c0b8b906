"""URL -> bus: the one place that knows which buses there are. A driver is imported only when its bus is opened."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from tg_schema.errors import BadRequest

from tg_base.bus.api import Bus


class BusOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach a broker; `memory://` needs none of it. Secrets are named here, never written here."""

    token_env: str | None = None
    """Environment variable that holds the broker's token."""
    token_file: Path | None = None
    """File that holds the broker's token; read again whenever the client connects."""
    trust_certs: Path | None = None
    """PEM file of the authorities that may sign the broker's certificate; None = the system's."""
    listener_name: str | None = None
    """Which of the broker's advertised listeners to use."""


@asynccontextmanager
async def open_bus(url: str, options: BusOptions | None = None) -> AsyncIterator[Bus]:
    """Open the bus that the URL names, and close it on leaving.

    `memory://` is a new bus of its own, shared by whoever is given the object. `pulsar://host:port` and
    `pulsar+ssl://host:port` are an Apache Pulsar, which need not be up yet.

    Raises:
        BadRequest: the URL names no bus, or a named secret or file is not there.
    """
    bus = _bus_of(url, options or BusOptions())
    try:
        yield bus
    finally:
        await bus.aclose()


def _bus_of(url: str, options: BusOptions) -> Bus:
    scheme = urlsplit(url).scheme
    if url == "memory://":
        from tg_base.bus.memory import MemoryBus  # noqa: PLC0415 - a driver is imported only when it is used

        return MemoryBus()
    if scheme in {"pulsar", "pulsar+ssl"} and urlsplit(url).hostname:
        from tg_base.bus.pulsar import PulsarBus  # noqa: PLC0415 - as above

        return PulsarBus(url, options)
    raise BadRequest("no such bus: write memory://, pulsar://host:port or pulsar+ssl://host:port")


def read_token(options: BusOptions) -> str | None:
    """The broker's token, or None where no token is named.

    Raises:
        BadRequest: the variable or file that should hold it is missing or empty.
    """
    if options.token_env is not None:
        token = os.environ.get(options.token_env, "").strip()
        if not token:
            raise BadRequest(f"the environment variable {options.token_env} should hold the broker's token; set it")
        return token
    if options.token_file is not None:
        try:
            token = options.token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            token = ""
        if not token:
            raise BadRequest(f"the file {options.token_file} should hold the broker's token; it can't be read")
        return token
    return None
