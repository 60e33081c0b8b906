"""A request's `Origin` and `Host` -> whether it may come in, and what its page may read (Fetch standard, CORS)."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Final
from urllib.parse import urlsplit

from tg_base.config import GatewayConfig
from tg_gateway.access.throttle import read_address
from tg_schema.errors import BadRequest

ALLOW_ORIGIN: Final = "Access-Control-Allow-Origin"
"""The header that names the origin whose pages may read an answer."""
ANY_ORIGIN: Final = "*"
"""Stands for pages of every origin."""
REMEMBERED_HOSTS = 256
"""Pairs of host and origin whose decision by the rules is cached."""
EXPOSED_HEADERS: Final = (
    "Retry-After", "WWW-Authenticate", "X-Request-Id", "X-Stream-Id", "X-Tokengrid-Ignored", "request-id",
    "x-should-retry",
)  # fmt: skip
"""Response headers that a page may read if credentials are allowed, besides those that every page may read."""
PREFLIGHT_SECONDS = 600
"""Seconds for which a browser may cache the answer to a preflight."""

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+")


class Origins:
    """Decides whose pages may use the gateway; the rules may be edited at any time.

    Args:
        config: `hosts`, `origins`, `allow_credentials` and the gateway's own `host`.

    Attributes:
        admits: `OriginRules.admits` of the rules in force.
        headers: `OriginRules.headers` of the current rules; do not change what it returns.

    Raises:
        BadRequest: a configured origin is malformed, or pages of every origin could send credentials.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._enforce(OriginRules(config))

    def prepare(self, config: GatewayConfig) -> Callable[[], None]:
        """Check edited hosts and origins, and return a function that puts them in force.

        Raises:
            BadRequest: as when it is created.
        """
        return partial(self._enforce, OriginRules(config))

    def _enforce(self, rules: "OriginRules") -> None:
        # A gateway has few names and pages: cache the decision for each until the next edit.
        self.admits = lru_cache(REMEMBERED_HOSTS)(rules.admits)
        self.headers = lru_cache(REMEMBERED_HOSTS)(rules.headers)


class OriginRules:
    """The rules of one configuration; their decisions never change.

    Args:
        config: as for `Origins`.

    Raises:
        BadRequest: as `Origins`.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._hosts = frozenset(host.lower() for host in (config.host, *config.hosts))
        self._origins = _origins_of(config)
        self._exposed = _exposed_headers(config)

    def admits(self, origin: str | None, host: str | None, *, keyed: bool) -> bool:
        """Whether to admit a request that a browser may have sent on behalf of a page.

        A page may send requests to the host that served it, and a page of a configured origin to any host. If no token
        is required, `Host` must also be one of our names, with or without an `Origin`. This stops DNS rebinding: a page
        whose own name was made to point here has the same origin, and sends no `Origin` when it only reads.

        Args:
            origin: the header, or None.
            host: the header, or None; every browser sends it.
            keyed: whether requests need a token.
        """
        # Compare without the scheme: behind a proxy that ends TLS, the page's scheme differs from ours.
        foreign = origin is not None and origin.partition("://")[2].lower() != (host or "").lower()
        if foreign and not self._allows(origin):
            return False
        return keyed or host is None or self._ours(_hostname(host), page=origin is not None and not foreign)

    def headers(self, origin: str | None) -> dict[str, str]:
        """The headers of every answer to a page, by which the browser lets the page read it.

        If origins are configured, `Vary` tells caches that the answer to another page would differ.
        """
        if origin is None or not self._allows(origin):
            return {"Vary": "Origin"} if self._origins else {}
        # Without this header a page can read none of our headers, not even the request's id.
        return {ALLOW_ORIGIN: origin, "Vary": "Origin", **self._exposed}

    def _allows(self, origin: str | None) -> bool:
        """An origin is ASCII (RFC 6454, section 6.2); an answer's headers cannot carry anything else."""
        origin = origin or ""
        return origin.isascii() and (ANY_ORIGIN in self._origins or origin.lower() in self._origins)

    def _ours(self, name: str, *, page: bool) -> bool:
        """Whether a host name is ours: a known name, or an IP address (which nobody can rebind) that served no page."""
        return is_loopback(name) or name in self._hosts or (read_address(name) is not None and not page)


def preflight_headers(asked: Mapping[str, str]) -> Mapping[str, str] | None:
    """The headers that answer a preflight: they allow what it asks for. None = the request is not a preflight.

    It does not check the method or the key; the request that follows is refused if they are wrong.
    """
    method = asked.get("Access-Control-Request-Method")
    if method is None:
        return None
    return {
        "Access-Control-Allow-Methods": method,
        "Access-Control-Allow-Headers": asked.get("Access-Control-Request-Headers", ""),
        "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
    }


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    address = read_address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _exposed_headers(config: GatewayConfig) -> dict[str, str]:
    """The headers that a page may read. With credentials, browsers take `*` for a header's name (Fetch, 3.3.2)."""
    if not config.allow_credentials:
        return {"Access-Control-Expose-Headers": "*"}
    if ANY_ORIGIN in config.origins:
        raise BadRequest(
            'every page could ask with its reader\'s cookies: name the origins in place of "*", or leave '
            "allow_credentials out"
        ).at("allow_credentials")
    return {"Access-Control-Allow-Credentials": "true", "Access-Control-Expose-Headers": ", ".join(EXPOSED_HEADERS)}


def _origins_of(config: GatewayConfig) -> frozenset[str]:
    for origin in config.origins:
        if origin != ANY_ORIGIN and not _ORIGIN.fullmatch(origin.lower()):
            raise BadRequest(
                f'{origin!r} is no origin: write its scheme, host and port alone, as "https://app.example:8443", or "*"'
            ).at("origins")
    return frozenset(origin.lower() for origin in config.origins)
