"""A source -> the pools: an address with model servers, or a name in DNS that is resolved again and again."""

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
"""Timeout of one resolution, in seconds."""

MAX_ADDRESSES = 1_000
"""Most addresses of one name that are used."""


# If no DNS server answers, the system's resolver blocks its thread for up to minutes. With threads of their own, such
# names delay only each other, and no other work in threads, such as watching files for edits.
_RESOLVERS = ThreadPoolExecutor(4, "resolve")


class Host(Struct, frozen=True):
    """An address with one model server on each port; or a name in DNS, each of whose addresses is such a host.

    Attributes:
        address: an IP address or a name; an IPv6 address without brackets.
        ports: the ports; () = the ports of the pool that selects it.
        name: the name for logs, metrics and pages; "" = its address.
        labels: the labels by which pools select it.
        models: base models that it serves; () = not known.
    """

    address: str
    ports: tuple[int, ...] = ()
    name: str = ""
    labels: dict[str, str] = {}
    models: tuple[str, ...] = ()

    async def resolve(self) -> tuple[Self, ...]:
        """The hosts of its A and AAAA records, by the system's resolver, sorted by address.

        Raises:
            OSError: the name has no address, or the resolver failed or took longer than `MAX_RESOLVE_SECONDS`.
        """
        async with asyncio.timeout(MAX_RESOLVE_SECONDS):
            look = partial(socket.getaddrinfo, self.address, None, type=socket.SOCK_STREAM)
            try:
                found: list[Any] = await asyncio.get_running_loop().run_in_executor(_RESOLVERS, look)
            except UnicodeError:
                raise OSError("not a valid name for DNS") from None
        # DNS servers vary the order. Sort the addresses, so that an unchanged set compares equal.
        addresses = sorted({str(place[0]) for *_, place in found})[:MAX_ADDRESSES]
        return tuple(msgspec.structs.replace(self, address=address) for address in addresses)


def join_address(address: str, port: int) -> str:
    """Host and port as one text; an IPv6 address is in its canonical form, in brackets."""
    return f"[{IPv6Address(address)}]:{port}" if ":" in address else f"{address}:{port}"


def split_address(text: str) -> tuple[str, int] | None:
    """Address and port of "host:port"; None: the text has another form."""
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
        keys: the position of the list; the last key is the list's name.
        labels: the labels of all hosts.
        models: the base models of all hosts.
        ip_only: whether a name in place of an IP address is refused.

    Raises:
        BadRequest: an address is malformed, or occurs twice.
    """
    found: dict[str, Host] = {}
    for at, text in enumerate(texts):
        place = split_address(text)
        if place is None:
            sentence = f'{keys[-1]}: "{text[:100]}" must be HOST:PORT, without a scheme or path'
        elif ip_only and not is_ip(place[0]):
            sentence = f"{keys[-1]}: Envoy only takes IP addresses; move the name {place[0]} to `names`"
        elif (name := join_address(*place).lower()) in found:
            sentence = f'{keys[-1]}: "{text}" is there twice; keep one'
        else:
            found[name] = Host(place[0], (place[1],), labels=dict(labels), models=models)
            continue
        raise BadRequest(sentence).at(*keys, str(at))
    return tuple(found.values())


def parse_port(text: str) -> int | None:
    """The number of a port; None: the text is not one."""
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
    """Whether a text can be a host name or an IPv4 address: it has no scheme, path, port or blank."""
    return 0 < len(text) <= 253 and all(sign.isalnum() or sign in "-._" for sign in text) and text.isascii()
