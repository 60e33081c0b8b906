"""Which gateway a command asks: the one named, the one at the default URL, or one in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

from tg_cli.endings import notify
from tg_client.transport import DEFAULT_URL
from tg_schema.errors import Unavailable

_PROBE_SECONDS = 1.0
"""Timeout of a connection to a gateway on this machine, in seconds."""
_EMBEDDED = "tokengrid.embedded"
"""Entry points of pipelines that run in this process: with them, the commands need not depend on a server."""

_TO_DO = "name one with -u, or install one that runs here: pip install tokengrid-serve"


class _Embedded(Protocol):
    """The module that such an entry point names."""

    DEMO_MODEL_NOTICE: str

    def embedded_gateway(self) -> AbstractAsyncContextManager[str]:
        """Runs a gateway while the block runs, and yields its URL."""
        ...


@asynccontextmanager
async def open_gateway(url: str | None) -> AsyncIterator[str]:
    """Yield the URL of the gateway to ask.

    Args:
        url: the gateway that the user named, which is not checked; None = none was named.

    Raises:
        Unavailable: no gateway is at the default URL, and the embedded pipeline is not installed.
    """
    if url is not None or await _listens(DEFAULT_URL):
        yield url or DEFAULT_URL
        return
    embedded = _find_embedded()
    if embedded is None:
        raise Unavailable(f"no gateway at {DEFAULT_URL}: {_TO_DO}")
    notify(
        f"no gateway at {DEFAULT_URL}; running {embedded.DEMO_MODEL_NOTICE} in this process (see tg-serve for others)"
    )
    async with embedded.embedded_gateway() as running:
        yield running


def _find_embedded() -> _Embedded | None:
    # Imported only where no gateway listens: it is slow to import.
    from importlib.metadata import entry_points

    for entry in entry_points(group=_EMBEDDED):
        try:
            found: _Embedded = entry.load()
        except ModuleNotFoundError:
            # The distribution is installed, but not everything that its pipeline needs.
            continue
        return found
    return None


async def _listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
