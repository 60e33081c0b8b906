"""HTTP tool -> socket: connects only to public addresses, and to those that the configuration allows.

It checks the address after name resolution, when it connects, because the owner of a name may change its address at any
time (DNS rebinding).
"""

import ipaddress
import re
import socket
from collections.abc import Iterable

from tg_schema.errors import BadRequest

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[object, ...]]
"""The type of `socket.getaddrinfo`'s results; the address is the first part of the last element."""

_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class PrivateAddress(OSError):
    """The name resolves to an address that the tool may not connect to."""


class AddressGuard:
    """The addresses that one host may have.

    Args:
        host: the host of the tool's URL.
        allowed: hosts, addresses and networks that may be private: "orders.internal", "10.1.2.3", "10.0.0.0/8".

    Raises:
        BadRequest: an entry of `allowed` has another form, or the host is a private address that no entry allows.
    """

    def __init__(self, host: str, allowed: Iterable[str]) -> None:
        host = host.lower().rstrip(".")
        networks = {entry: _network(entry) for entry in allowed}
        self._networks = [network for network in networks.values() if network is not None]
        names = {_name(entry) for entry, network in networks.items() if network is None}
        self._any = host in names
        if self._always_private(host):
            sentence = f'{host} is private; if the tool shall reach it, write options.allow_private = ["{host}"]'
            raise BadRequest(sentence).at("url")

    def socket(self, info: AddressInfo) -> socket.socket:
        """Create the socket for one address; passed to the connector as `socket_factory`.

        Raises:
            PrivateAddress: the tool may not connect to it.
        """
        family, kind, protocol, _, address = info
        if not self._may_reach(ipaddress.ip_address(str(address[0]))):
            raise PrivateAddress("a private address")
        return socket.socket(family, kind, protocol)

    def _always_private(self, host: str) -> bool:
        """Whether it is private without resolution: an address, or a name of this machine (RFC 6761, section 6.3)."""
        try:
            return not self._may_reach(ipaddress.ip_address(host))
        except ValueError:
            own = host == "localhost" or host.endswith(".localhost")
            return own and not self._any and not any(network.is_loopback for network in self._networks)

    def _may_reach(self, address: Address) -> bool:
        inner = _inner(address)
        named = any(one in network for network in self._networks for one in (address, inner))
        # Python considers most multicast addresses global.
        return self._any or named or (inner.is_global and not inner.is_multicast)


def _inner(address: Address) -> Address:
    """The IPv4 address inside an IPv6 address: mapped, 6to4 (RFC 3056) or NAT64 (RFC 6052)."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def _name(entry: str) -> str:
    name = entry.lower().rstrip(".")
    if not _NAME.fullmatch(name):
        sentence = f'allow_private has "{entry[:80]}"; name a host, an address or a network, as 10.0.0.0/8'
        raise BadRequest(sentence).at("allow_private")
    return name
