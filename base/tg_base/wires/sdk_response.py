"""SDK's call -> bytes: an answer of a provider's SDK, entered and left, its failures in our words."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from tg_base.provider_errors import retry_after, status_error
from tg_base.wires.event_chunks import Read
from tg_schema.errors import IncompleteStream, ProtocolError, ProviderAuth, TgError, Timeout, Unavailable

CONNECT_TIMEOUT = 10.0
"""Seconds to a connection, TLS included; everything after it is timed by the stream's guard."""

LONGEST_ERROR_BODY = 64 * 1024
"""Bytes looked at of the body of an error, for its code."""

ERROR_PATIENCE = 2.0
"""Seconds that the body of an error may take; its status is known, and says enough."""

_LONGEST_BODY = 16 * 1024 * 1024
_NO_STREAM = {"application/json", "text/html"}
_UNREACHABLE = "the provider cannot be reached; check its base_url, the network and whether it runs"
_BROKEN = "the connection to the provider broke before the answer was complete; ask again"
_SLOW = f"the provider did not take a connection within {CONNECT_TIMEOUT:g} s"
_LATE = "the provider did not answer in time; ask again"
_CREDENTIALS = "the processor's credentials gave no access token; its operator must check them and what they may do"


class Response(Protocol):
    """What we need of an HTTP response of a provider's SDK, whose body is still to be read."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By name in any case."""

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The body, as it comes."""

    async def aclose(self) -> None:
        """Close the body; before its end that closes the socket."""


class Failures(msgspec.Struct, frozen=True):
    """The exceptions by which an SDK says what went wrong; the first group that has one wins."""

    slow: tuple[type[Exception], ...] = ()
    unreachable: tuple[type[Exception], ...] = ()
    broken: tuple[type[Exception], ...] = ()
    """While the body is read."""
    credentials: tuple[type[Exception], ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """What the body of an error says: the provider's word for it, and the seconds that it asks to wait."""

    word: str = ""
    wait: float | None = None


@asynccontextmanager
async def opened(
    call: Awaitable[Response], failures: Failures, refusal: Callable[[bytes], Refusal]
) -> AsyncIterator[Read]:
    """Enter the body of an SDK's answer. Leaving before its end closes the socket.

    Raises:
        TgError: there is no answer, its status is not 2xx, or it is no stream; in our own words.
    """
    response = await answered(call, failures)
    try:
        if not 200 <= response.status_code < 300:
            raise await _refused(response, failures, refusal)
        if response.headers.get("content-type", "").partition(";")[0].strip().lower() in _NO_STREAM:
            raise ProtocolError("the provider's answer is not a stream of events; check that base_url is an API's")
        yield _reader(response, failures)
    finally:
        await response.aclose()


async def whole_body(
    call: Awaitable[Response], failures: Failures, refusal: Callable[[bytes], Refusal], patience: float = 60.0
) -> bytes:
    """The whole body of an answer that is no stream, 16 MB at most.

    Raises:
        Timeout: it has not come within `patience` seconds.
        TgError: as of `opened`.
    """
    try:
        async with asyncio.timeout(patience):
            response = await answered(call, failures)
            try:
                if not 200 <= response.status_code < 300:
                    raise await _refused(response, failures, refusal)
                return await _at_most(_reader(response, failures), _LONGEST_BODY)
            finally:
                await response.aclose()
    except TimeoutError:
        raise Timeout(_LATE) from None


async def answered(call: Awaitable[Response], failures: Failures) -> Response:
    """Wait for an SDK's answer, its exceptions as errors of ours."""
    try:
        return await call
    except failures.slow:
        raise Timeout(_SLOW) from None
    except failures.unreachable:
        raise Unavailable(_UNREACHABLE) from None
    except failures.credentials:
        raise ProviderAuth(_CREDENTIALS) from None


def _reader(response: Response, failures: Failures) -> Read:
    body = response.aiter_bytes()

    async def read() -> bytes:
        try:
            return await anext(body, b"")
        except failures.broken:
            raise IncompleteStream(_BROKEN) from None

    return read


async def _refused(response: Response, failures: Failures, refusal: Callable[[bytes], Refusal]) -> TgError:
    """The error for a status that is not 2xx. Nothing of the body's text is passed on: it may hold anything."""
    try:
        async with asyncio.timeout(ERROR_PATIENCE):
            said = refusal(await _at_most(_reader(response, failures), LONGEST_ERROR_BODY))
    except (IncompleteStream, TimeoutError):
        said = Refusal()
    wait = retry_after(response.headers)
    return status_error(response.status_code, said.word, said.wait if wait is None else wait)


async def _at_most(read: Read, size: int) -> bytes:
    body = b""
    while len(body) < size and (part := await read()):
        body += part
    return body
