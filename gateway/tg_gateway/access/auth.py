"""Token -> principal: one check for all doors. Only SHA-256 digests are stored, and compared in constant time."""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from tg_base.config import GatewayConfig
from tg_gateway.access.key_rights import ANYBODY_KEY, KeyRights
from tg_gateway.access.limits import Limits
from tg_gateway.access.origins import is_loopback
from tg_gateway.access.throttle import Throttle
from tg_gateway.telemetry import AUTH_FAILURES
from tg_schema.errors import BadRequest, RateLimited, Unauthorized

log = structlog.get_logger()

KEY_HEADERS: Final = ("x-api-key", "api-key")
"""Headers that hold a token alone: Anthropic's clients send the first, Azure's the second."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sent a request, by its token.

    Attributes:
        name: the key's name, for its limits and for logs.
        digest: the token's SHA-256 in hex; "" if no token was required.
    """

    name: str
    digest: str = ""


ANYBODY = Principal(ANYBODY_KEY)
"""The principal of all requests while no token is required."""


class Authenticator:
    """Checks tokens against the keys, which may be edited at any time.

    Args:
        config: `auth`, `keys` and the address that decides what "auto" means.
        limits: says how many wrong tokens an address may send.
        time: a monotonic clock, in seconds.

    Attributes:
        required: whether requests need a token now.
        callers: an id for each key's name, which separates the keys' prompt caches. Edits of the keys change it.
        rights: what each key may ask.

    Raises:
        BadRequest: the configuration would admit everybody on the network, or nobody; the message says what to write.
    """

    def __init__(self, config: GatewayConfig, limits: Limits, time: Callable[[], float]) -> None:
        self.required = _is_required(config)
        self.rights, self._names = KeyRights(config), _names_of(config)
        self.callers = find_callers(config)
        self._throttle = Throttle(limits.failures, limits.forget, time)

    def prepare(self, config: GatewayConfig) -> Callable[[], None]:
        """Check edited keys, and return a function that puts them in force.

        Tokens are required from the first key on, until a restart: a file that was emptied by mistake opens no
        door.

        Raises:
            BadRequest: as when it is created.
        """
        required, names, rights = _is_required(config), _names_of(config), KeyRights(config)

        def commit() -> None:
            revoked = self._names.keys() - names.keys()
            added = names.keys() - self._names.keys()
            if revoked or added:
                log.info(
                    "gateway.keys",
                    added=sorted(names[digest] for digest in added),
                    revoked=sorted(self._names[digest] for digest in revoked),
                )
            # A revoked token must no longer spare its address the wait.
            self._throttle.forget(revoked)
            self.rights, self._names, self.required = rights, names, self.required or required
            self.callers.clear()
            self.callers.update(find_callers(config))

        return commit

    def name_of(self, principal: Principal) -> str | None:
        """The current name of a token's key; None = the token was revoked since it was checked."""
        # By digest, not by name: when a key gets a new token under its old name, the old token must lose its rights.
        return self._names.get(principal.digest) if self.required else principal.name

    def check(self, token: str | None, address: str) -> Principal:
        """The principal of a token.

        An address that has sent too many wrong tokens must wait, unless it sends a token that was right from there
        before: a stranger's guesses must not lock out everybody behind the same proxy.

        Raises:
            Unauthorized: there is no token, or it is unknown.
            RateLimited: too many wrong tokens came from this address; `retry_after` says when to try again.
        """
        if not self.required:
            return ANYBODY
        # A request without a token guesses nothing: it does not count against its address.
        if not token:
            AUTH_FAILURES.inc()
            raise Unauthorized("send a bearer token: `Authorization: Bearer ...`")
        # The server decodes invalid UTF-8 to surrogates; hash the original bytes.
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
        # Check before comparing, so that a client that must wait learns nothing about its token.
        wait = self._throttle.wait(address, digest)
        if wait > 0:
            AUTH_FAILURES.inc()
            raise RateLimited("too many wrong tokens from this address; wait", retry_after=wait)
        name = None
        # No early exit: the time must not reveal which key matched, or whether one did.
        for known, known_name in self._names.items():
            if hmac.compare_digest(known, digest):
                name = known_name
        if name is None:
            AUTH_FAILURES.inc()
            self._throttle.note_failure(address)
            raise Unauthorized("the bearer token or key is not known")
        self._throttle.note_success(address, digest)
        return Principal(name, digest)


def find_token(headers: Mapping[str, str]) -> str | None:
    """The token of a request: that of `Authorization: Bearer` (RFC 6750, section 2.1), otherwise of `KEY_HEADERS`."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    alone = (headers.get(name, "").strip() for name in KEY_HEADERS)
    return next((found for found in (bearer, *alone) if found), None)


def _is_required(config: GatewayConfig) -> bool:
    local = is_loopback(config.host)
    if config.auth == "off" or (config.auth == "auto" and local and not config.keys):
        return False
    if not config.keys and local:
        raise BadRequest('auth = "on" needs a key; add [[gateway.keys]], or write auth = "auto"').at("auth")
    if not config.keys:
        raise BadRequest(
            f"the gateway would listen on {config.host} without any key: "
            'add [[gateway.keys]] to the configuration, listen on 127.0.0.1, or write auth = "off"'
        ).at("host")
    return True


def _names_of(config: GatewayConfig) -> dict[str, str]:
    """The keys' names by the digests of their tokens."""
    return {_digest_of(key.name, key.sha256): key.name for key in config.keys}


def find_callers(config: GatewayConfig) -> dict[str, str]:
    """Name of a key -> an id that does not reveal the name, and is equal in each process with these keys.

    Raises:
        BadRequest: a key has no digest.
    """
    # Several tokens with one name are one customer: use the one with the least digest.
    secrets = {name: bytes.fromhex(digest) for digest, name in sorted(_names_of(config).items(), reverse=True)}
    return {
        name: hashlib.blake2b(name.encode(), key=secret, digest_size=16).hexdigest() for name, secret in secrets.items()
    }


def _digest_of(name: str, sha256: str) -> str:
    digest = sha256.strip().lower()
    if not _DIGEST.fullmatch(digest):
        raise BadRequest(f"the key {name!r} needs sha256 = the 64 hexadecimal digits of its token's SHA-256")
    return digest
