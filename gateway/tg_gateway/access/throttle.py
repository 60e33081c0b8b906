"""Wrong tokens -> waiting time: counts failures by address, for a bounded number of addresses."""

import ipaddress
from collections.abc import Callable, Set
from typing import Any

MAX_ADDRESSES = 10_000
"""Addresses, and pairs of address and right token, that are remembered; the oldest go first."""


class Throttle:
    """Makes an address that fails too often within `forget` seconds wait until these are over.

    Args:
        failures: how many are too many.
        forget: seconds.
        time: a monotonic clock, in seconds.
    """

    def __init__(self, failures: int, forget: float, time: Callable[[], float]) -> None:
        self._limit = failures
        self._forget = forget
        self._time = time
        self._failures: dict[str, tuple[float, int]] = {}
        self._right: dict[tuple[str, str], None] = {}

    def wait(self, address: str, digest: str) -> float:
        """Seconds that this address has to wait before another try; 0 = come in."""
        network = network_of(address)
        since, count = self._failures.get(network, (0.0, 0))
        left = since + self._forget - self._time()
        if left <= 0:
            self._failures.pop(network, None)
            return 0.0
        return left if count >= self._limit and (network, digest) not in self._right else 0.0

    def note_failure(self, address: str) -> None:
        """Count a wrong token of an address."""
        network = network_of(address)
        # The time of the first failure stays: further tries do not lengthen the wait, which would lock out neighbours.
        since, count = self._failures.get(network, (self._time(), 0))
        self._failures[network] = (since, count + 1)
        _trim(self._failures)

    def note_success(self, address: str, digest: str) -> None:
        """Forget an address's wrong tokens, because it sent a right one."""
        self._right[network_of(address), digest] = None
        _trim(self._right)

    def forget(self, digests: Set[str]) -> None:
        """Forget tokens that are no longer right."""
        self._right = {pair: None for pair in self._right if pair[1] not in digests}


def _trim(remembered: dict[Any, Any]) -> None:
    if len(remembered) > MAX_ADDRESSES:
        # A dict keeps the order in which its keys were added: the first is the oldest.
        del remembered[next(iter(remembered))]


def network_of(address: str) -> str:
    """The network that counts as one client: the address itself, or for IPv6 its /64, which one customer owns."""
    parsed = read_address(address)
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed and parsed.version == 6 else address


def read_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an address; None = the text is no address."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
