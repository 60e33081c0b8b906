"""A name in DNS -> the hosts behind it, resolved again and again."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from tg_picker.pools.host import Host

RESOLVE_SECONDS = 5.0
"""Seconds between two resolutions of a name."""

MAX_RESOLVE_SECONDS = 5.0
"""Seconds that one resolution may take."""

MAX_ADDRESSES = 1_000
"""Addresses of a name that are used."""


# Where no DNS server answers, the system's resolver holds its thread for up to minutes. With threads of their own, such
# names delay only each other, and not other work in threads, such as the watch for edits.
_RESOLVERS = ThreadPoolExecutor(4, "resolve")


class DnsName(Struct, frozen=True):
    """A name, each of whose A and AAAA records is a host.

    Attributes:
        name: for instance that of a headless service.
        ports: () = those of the pool that selects its hosts.
        labels: the labels of each host.
        models: base models that each host serves; () = not known.
    """

    name: str
    ports: tuple[int, ...] = ()
    labels: dict[str, str] = {}
    models: tuple[str, ...] = ()

    @property
    def host(self) -> Host:
        """The properties that all of its hosts share."""
        return Host(self.name, self.ports, labels=self.labels, models=self.models)

    async def resolve(self) -> tuple[Host, ...]:
        """The hosts, by the resolver of the system, in the order of their addresses.

        Raises:
            OSError: the name has no address, or the resolver failed or took longer than `MAX_RESOLVE_SECONDS`.
        """
        async with asyncio.timeout(MAX_RESOLVE_SECONDS):
            look = partial(socket.getaddrinfo, self.name, None, type=socket.SOCK_STREAM)
            try:
                found: list[Any] = await asyncio.get_running_loop().run_in_executor(_RESOLVERS, look)
            except UnicodeError:
                raise OSError("no name that DNS could know") from None
        # DNS servers vary the order; sort, so that an unchanged set compares equal.
        addresses = sorted({str(place[0]) for *_, place in found})[:MAX_ADDRESSES]
        return tuple(msgspec.structs.replace(self.host, address=address) for address in addresses)
