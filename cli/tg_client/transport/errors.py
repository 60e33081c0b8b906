"""A connection's failures and the gateway's statuses -> our error types, in sentences that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from tg_client.transport.address import TOKEN_VARIABLE, WRONG_URL
from tg_schema import Error, TgError
from tg_schema.errors import (
    BadRequest,
    IncompleteStream,
    NotFound,
    ProtocolError,
    RateLimited,
    Timeout,
    TooLarge,
    Unauthorized,
    Unavailable,
)

TOKEN_NEEDED = f"needs a valid token; set {TOKEN_VARIABLE}, which takes precedence over TRUSTGRAPH_TOKEN"
"""The sentence for 401. The gateway's own sentence names a header, which the user of a command cannot set."""
_STRANGER = "is it a Tokengrid gateway? Give its URL, or set TOKENGRID_URL"

_STATUS: dict[int, tuple[type[TgError], str]] = {
    HTTPStatus.UNAUTHORIZED: (Unauthorized, TOKEN_NEEDED),
    HTTPStatus.FORBIDDEN: (Unauthorized, TOKEN_NEEDED),
    HTTPStatus.NOT_FOUND: (NotFound, f"has no such service; {_STRANGER}"),
    HTTPStatus.METHOD_NOT_ALLOWED: (NotFound, f"has no such service; {_STRANGER}"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: (TooLarge, "takes no request of this size"),
    HTTPStatus.TOO_MANY_REQUESTS: (RateLimited, "has too many requests; ask again later"),
    HTTPStatus.BAD_GATEWAY: (Unavailable, "is not ready (status 502); ask again later"),
    HTTPStatus.SERVICE_UNAVAILABLE: (Unavailable, "is not ready (status 503); ask again later"),
    HTTPStatus.GATEWAY_TIMEOUT: (Timeout, "gave up waiting for the answer (status 504)"),
}


class _Body(msgspec.Struct, frozen=True):
    """The body of an error response."""

    error: Error


class Reason(NamedTuple):
    """Why there is no answer: the error, a sentence with `{base}` for the gateway's URL, and when to retry."""

    kind: type[TgError]
    sentence: str
    retry_after: float | None = None


BROKEN = Reason(Unavailable, "{base} closed the connection without an answer; ask again", 1.0)
INVALID_URL = Reason(BadRequest, WRONG_URL)
NO_TLS = Reason(
    Unavailable,
    "{base} does not speak TLS as it should; check the URL: without a TLS proxy a gateway has http://",
)
"""The other side speaks no TLS, or no version that both sides know."""
UNTRUSTED = Reason(Unavailable, "the TLS certificate of {base} cannot be verified; check the URL and the certificate")
SLOW = Reason(Timeout, "no connection to {base} in time; check the host, the port and the network")
UNKNOWN_HOST = Reason(Unavailable, "the host of {base} cannot be found; check the URL and the network")
NO_GATEWAY = Reason(Unavailable, "no gateway answers at {base}: start one with tg-serve, or give the URL of one")
NO_HTTP = Reason(ProtocolError, f"what answers at {{base}} does not speak HTTP; {_STRANGER}")
COMPRESSED = Reason(
    ProtocolError,
    "{base} compresses its answers although nobody asked for that; switch it off there, or in its proxy",
)


class WireError(Exception):
    """No answer arrived, or the connection broke during it."""

    def __init__(self, reason: Reason = BROKEN) -> None:
        super().__init__(reason)
        self.reason = reason


@contextmanager
def connecting(base: str) -> Iterator[None]:
    """Translate failures before the gateway's response begins."""
    try:
        yield
    except WireError as error:
        kind, sentence, retry_after = error.reason
        raise kind(sentence.format(base=base), retry_after=retry_after) from None


@contextmanager
def reading(base: str) -> Iterator[None]:
    """Translate failures after the gateway's response has begun."""
    try:
        yield
    except WireError:
        raise make_incomplete(base) from None


def make_incomplete(base: str) -> IncompleteStream:
    """The error for a truncated answer."""
    return IncompleteStream(f"the answer of {base} broke off before its end; ask again")


def refusal(base: str, status: int, retry_after: str | None, body: bytes) -> TgError:
    """The error of an error response: the gateway's own, or one for the status."""
    seconds = _seconds(retry_after)
    try:
        error = msgspec.json.decode(body, type=_Body).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _by_status(base, status, seconds)
    if status == HTTPStatus.UNAUTHORIZED:
        return _by_status(base, status, seconds)
    return TgError.of(msgspec.structs.replace(error, retry_after=error.retry_after or seconds))


def _by_status(base: str, status: int, retry_after: float | None) -> TgError:
    kind, sentence = _STATUS.get(status, (ProtocolError, f"answers with status {status}; {_STRANGER}"))
    if 300 <= status < 400:
        sentence = f"redirects elsewhere (status {status}); give the URL that it redirects to"
    return kind(f"{base} {sentence}", retry_after=retry_after)


def _seconds(retry_after: str | None) -> float | None:
    """The seconds of a Retry-After header. Its other form, a date, is ignored: our gateway never sends it."""
    text = (retry_after or "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
