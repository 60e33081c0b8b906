"""A source -> the pools: an address with model servers, or a name in DNS, which is resolved again and again."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType
from typing import Any, Self

import msgspec
from msgspec import Struct

from tg_schema.errors import BadRequest

RESOLVE_SECONDS = 5.0
"""Seconds between two resolutions of a name."""

MAX_RESOLVE_SECONDS = 5.0
"""Seconds that one resolution may take."""

MAX_ADDRESSES = 1_000
"""Addresses of a name that are used."""


# Where no DNS server answers, the system's resolver holds its thread for up to minutes. With threads of their own, such
# names delay only each other, and not other work in threads, such as the watch for edits.
_RESOLVERS = ThreadPoolExecutor(4, "resolve")


class Host(Struct, frozen=True):
    """An address with one model server on each port; or a name in DNS, each of whose addresses is such a host.

    Attributes:
        address: an IP address or a name; an IPv6 address without brackets.
        ports: () = those of the pool that selects it.
        name: for logs, metrics and pages; "" = its address.
        labels: what pools select by.
        models: base models that it serves; () = not known.
    """

    address: str
    ports: tuple[int, ...] = ()
    name: str = ""
    labels: dict[str, str] = {}
    models: tuple[str, ...] = ()

    async def resolve(self) -> tuple[Self, ...]:
        """The hosts of its A and AAAA records, by the resolver of the system, in the order of their addresses.

        Raises:
            OSError: the name has no address, or the resolver failed or took longer than `MAX_RESOLVE_SECONDS`.
        """
        async with asyncio.timeout(MAX_RESOLVE_SECONDS):
            look = partial(socket.getaddrinfo, self.address, None, type=socket.SOCK_STREAM)
            try:
                found: list[Any] = await asyncio.get_running_loop().run_in_executor(_RESOLVERS, look)
            except UnicodeError:
                raise OSError("no name that DNS could know") from None
        # DNS servers vary the order; sort, so that an unchanged set compares equal.
        addresses = sorted({str(place[0]) for *_, place in found})[:MAX_ADDRESSES]
        return tuple(msgspec.structs.replace(self, address=address) for address in addresses)


def join_address(address: str, port: int) -> str:
    """Host and port as one text, with brackets around an IPv6 address, in its canonical form."""
    return f"[{IPv6Address(address)}]:{port}" if ":" in address else f"{address}:{port}"


def split_address(text: str) -> tuple[str, int] | None:
    """Address and port of "host:port"; None: it is something else."""
    address, _, port = text.strip().rpartition(":")
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
        try:
            IPv6Address(address)
        except ValueError:
            return None
    elif not is_host(address):
        return None
    number = parse_port(port)
    return None if number is None else (address, number)


def read_hosts(
    texts: Sequence[str],
    *keys: str,
    labels: Mapping[str, str] = MappingProxyType({}),
    models: tuple[str, ...] = (),
    ip_only: bool = False,
) -> tuple[Host, ...]:
    """The hosts of a list in a configuration.

    Args:
        texts: each as "HOST:PORT".
        keys: where the list stands; the last one is its name.
        labels: the labels of all of them.
        models: the base models of all of them.
        ip_only: whether a name in place of an IP address is refused.

    Raises:
        BadRequest: one is malformed, or occurs twice.
    """
    found: dict[str, Host] = {}
    for at, text in enumerate(texts):
        place = split_address(text)
        if place is None:
            sentence = f'{keys[-1]}: "{text[:100]}" must be HOST:PORT, without a scheme or path'
        elif ip_only and not is_ip(place[0]):
            sentence = f"{keys[-1]}: Envoy takes IP addresses alone; move the name {place[0]} to `names`"
        elif (name := join_address(*place).lower()) in found:
            sentence = f'{keys[-1]}: "{text}" is there twice; keep one'
        else:
            found[name] = Host(place[0], (place[1],), labels=dict(labels), models=models)
            continue
        raise BadRequest(sentence).at(*keys, str(at))
    return tuple(found.values())


def parse_port(text: str) -> int | None:
    """The number of a port; None: it is none."""
    is_number = text.isascii() and text.isdigit() and len(text) <= 5
    return int(text) if is_number and 1 <= int(text) <= 65535 else None


def is_ip(text: str) -> bool:
    """Whether a text is an IP address, without brackets."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_host(text: str) -> bool:
    """Whether a text can be a name or an IPv4 address: no scheme, path, port or blank in it."""
    return 0 < len(text) <= 253 and all(sign.isalnum() or sign in "-._" for sign in text) and text.isascii()
