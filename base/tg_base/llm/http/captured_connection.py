"""An SDK's public call -> the raw HTTP answer, before the SDK reads it.

Some SDKs hide the errors within a stream, and none of them limits what it reads. Therefore an SDK only builds the
request (path, credentials, headers, names in the body). `CapturingTransport` sends it over our connections and keeps
the answer from the SDK. It works with httpx and httpx2.
"""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from functools import partial
from ssl import SSLContext
from typing import Any

import msgspec
from typing_extensions import override

from tg_base.llm.http.failures import NO_FAILURES, Failures
from tg_base.llm.http.open_pool import open_pool
from tg_base.llm.http.response import HttpAnswer, Method
from tg_schema import TgError


class RecordedRequest(msgspec.Struct, frozen=True):
    """What an SDK would have sent.

    Attributes:
        method: the HTTP method.
        url: as the SDK has encoded it.
        headers: all of them, the credentials included.
        content: the body.
        small: an argument of `CapturedConnection.post` that stands for it: the SDK is called with `small`, and this
            request is sent instead.
    """

    method: Method
    url: str
    headers: tuple[tuple[str, str], ...]
    content: bytes
    small: Any = None

    @override
    def __repr__(self) -> str:
        # No repr: the headers have a key, and the content has a user's prompt.
        return f"RecordedRequest({len(self.content)} bytes)"


class _Slot:
    """The answer to one call, or the error if there is none.

    Attributes:
        instead: the request to send in place of the SDK's.
        records: whether to send nothing, and keep the request in `recorded`.
    """

    answer: HttpAnswer | None = None
    error: TgError | None = None
    instead: RecordedRequest | None = None
    records: bool = False
    recorded: RecordedRequest | None = None

    def close(self) -> None:
        if self.answer is not None:
            self.answer.close()


class _Captured(BaseException):
    """Raised to leave the SDK's call stack; carries no data that the SDK might log."""

    # A BaseException: SDKs wrap an Exception in their own, and retry after some.


# The answer bypasses the SDK, so a context variable links each call to its request within a shared client.
_slot: ContextVar[_Slot] = ContextVar("slot")


class CapturingTransport:
    """The `transport` of an SDK's HTTP client.

    Args:
        tls: the trusted certificates.
        keyless: remove the key from requests: an SDK sends one even to a server that needs none, for instance from
            the environment.
    """

    def __init__(self, tls: SSLContext, *, keyless: bool = False) -> None:
        self._pool = open_pool(tls)
        self._keyless = keyless

    async def handle_async_request(self, request: Any) -> Any:
        """Send the request, and raise out of the SDK with the answer kept."""
        slot = _slot.get()
        body = await request.aread()
        if self._keyless:
            request.headers.pop("Authorization", None)
        made = RecordedRequest(request.method, str(request.url), tuple(request.headers.multi_items()), body)
        if slot.records:
            slot.recorded = made
            raise _Captured
        sent = slot.instead or made
        try:
            slot.answer = await self._pool.ask(sent.method, sent.url, sent.headers, sent.content or None)
        except TgError as error:
            slot.error = error
        raise _Captured

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    async def __aenter__(self) -> "CapturingTransport":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class CapturedConnection:
    """An SDK's client whose calls return the HTTP answer; its HTTP client has a `CapturingTransport`.

    Args:
        post: requests a streamed answer; its argument is a request's body.
        models: requests the list of models.
        close: closes the SDK's client.
        failures: the SDK's exceptions for missing credentials.
    """

    def __init__(
        self,
        post: Callable[[Any], Awaitable[object]],
        models: Callable[[], Awaitable[object]],
        close: Callable[[], Awaitable[None]],
        failures: Failures = NO_FAILURES,
    ) -> None:
        self._post = post
        self._models = models
        self._close = close
        self._failures = failures

    async def post(self, body: Any) -> HttpAnswer:
        """See `SdkConnection`; `body` may be a request that `record` has returned, in any process."""
        if isinstance(body, RecordedRequest):
            return await self._capture(partial(self._post, body.small), body)
        return await self._capture(partial(self._post, body))

    async def record(self, body: Any, small: Any) -> RecordedRequest:
        """The request that `post` would send for `body`.

        Args:
            body: as for `post`.
            small: a small body, with which the SDK is called when the recorded request is sent.
        """
        slot = _Slot()
        slot.records = True
        with self._failures.translate():
            await _call(partial(self._post, body), slot)
        if slot.recorded is None:
            raise TypeError("the SDK did not send its request through the transport")
        return msgspec.structs.replace(slot.recorded, small=small)

    async def models(self) -> HttpAnswer:
        """See `SdkConnection`."""
        return await self._capture(self._models)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._close()

    async def _capture(
        self, call: Callable[[], Awaitable[object]], instead: RecordedRequest | None = None
    ) -> HttpAnswer:
        with self._failures.translate():
            return await capture(call, instead)


async def capture(call: Callable[[], Awaitable[object]], instead: RecordedRequest | None) -> HttpAnswer:
    """Let the SDK send its request, or another in its place, and return the answer.

    Raises:
        TgError: of `HttpPool.ask`.
        Exception: the SDK's own, raised before it sent anything.
    """
    slot = _Slot()
    slot.instead = instead
    # A cancellation may arrive after the answer did; nobody else would close its socket then.
    with ExitStack() as cancelled:
        cancelled.callback(slot.close)
        await _call(call, slot)
        cancelled.pop_all()
    if slot.error is not None:
        raise slot.error
    if slot.answer is None:
        raise TypeError("the SDK did not send its request through the transport")
    return slot.answer


async def _call(call: Callable[[], Awaitable[object]], slot: _Slot) -> None:
    token = _slot.set(slot)
    try:
        with suppress(_Captured):
            await call()
    finally:
        _slot.reset(token)
