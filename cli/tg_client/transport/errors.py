"""A connection's failures and the gateway's statuses -> the closed set, in sentences that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

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

TOKEN_NEEDED = f"needs a valid token; set {TOKEN_VARIABLE}, which goes before TRUSTGRAPH_TOKEN"
"""The sentence for 401. The gateway's own names a header, which the user of a command cannot set."""
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


class WireError(Exception):
    """The connection broke. Subclasses are more precise reasons for the missing answer."""

    kind: type[TgError] = Unavailable
    sentence = "{base} closed the connection without an answer; ask again"
    retry_after: float | None = 1.0


class InvalidUrl(WireError):
    """The host of the URL is no valid name."""

    kind = BadRequest
    sentence = WRONG_URL
    retry_after = None


class NoTls(WireError):
    """There is no TLS on the other side, or none that both sides know."""

    sentence = "{base} does not speak TLS as it should; check the URL: without a TLS proxy a gateway has http://"
    retry_after = None


class UntrustedGateway(WireError):
    """The certificate is not for this host, or its issuer is not trusted by this machine."""

    sentence = "the TLS certificate of {base} cannot be verified; check the URL and the certificate"
    retry_after = None


class SlowConnection(WireError):
    """There was no connection in time."""

    kind = Timeout
    sentence = "no connection to {base} in time; check the host, the port and the network"
    retry_after = None


class UnknownHost(WireError):
    """The system's resolver does not know the host."""

    sentence = "the host of {base} cannot be found; check the URL and the network"
    retry_after = None


class NoGateway(WireError):
    """The connection was refused."""

    sentence = "no gateway answers at {base}: start one with tg-serve, or give the URL of one"
    retry_after = None


class NoHttp(WireError):
    """The peer's answer is not HTTP."""

    kind = ProtocolError
    sentence = f"what answers at {{base}} does not speak HTTP; {_STRANGER}"
    retry_after = None


class CompressedAnswer(WireError):
    """The answer is compressed."""

    kind = ProtocolError
    sentence = "{base} compresses its answers although nobody asked for that; switch it off there, or in its proxy"
    retry_after = None


@contextmanager
def connecting(base: str) -> Iterator[None]:
    """Translate failures before the gateway's response begins."""
    try:
        yield
    except WireError as error:
        raise error.kind(error.sentence.format(base=base), retry_after=error.retry_after) from None


@contextmanager
def reading(base: str) -> Iterator[None]:
    """Translate failures after the gateway's response has begun."""
    try:
        yield
    except WireError:
        raise make_incomplete(base) from None


def make_incomplete(base: str) -> IncompleteStream:
    """The answer was truncated."""
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
    """The seconds of a Retry-After header. The other form, a date, is ignored: our gateway never sends it."""
    text = (retry_after or "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
