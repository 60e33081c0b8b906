"""A provider's SDK prepares a request, our pool sends it: the SDK runs once a minute instead of for each request."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tg_base.llm.http.failures import NO_FAILURES, Failures
from tg_base.llm.http.response import HttpAnswer, Method

if TYPE_CHECKING:
    from tg_base.llm.http.pool import HttpPool, HttpTarget

PREPARED_SECONDS = 60.0
"""Seconds for which a prepared request is reused; short, so that the SDK renews expiring credentials in time."""


class SdkRequest(Protocol):
    """The common part of a request of httpx and of httpx2."""

    @property
    def url(self) -> Any:
        """The target URL."""

    @property
    def headers(self) -> Any:
        """A case-insensitive multi-dict."""


Prepare = Callable[[Method], Awaitable[SdkRequest]]
"""Lets the SDK build a request without sending it: POST requests an answer, GET the list of models."""


class _Prepared(msgspec.Struct, frozen=True):
    """A request without its body, and the monotonic time until which it may be reused."""

    target: "HttpTarget"
    until: float


class PreparedConnection:
    """An SDK's client that only prepares requests, and the connections that send them.

    Args:
        prepare: see `Prepare`; never called concurrently.
        pool: sends the requests.
        failures: the exceptions of `prepare` for missing credentials.
    """

    def __init__(self, prepare: Prepare, pool: "HttpPool", failures: Failures = NO_FAILURES) -> None:
        self._prepare = prepare
        self._pool = pool
        self._failures = failures
        self._prepared: dict[Method, _Prepared] = {}
        self._preparing = asyncio.Lock()

    def post(self, body: bytes) -> Awaitable[HttpAnswer]:
        """See `SdkConnection`."""
        return self._send("POST", body)

    def models(self) -> Awaitable[HttpAnswer]:
        """See `SdkConnection`."""
        return self._send("GET", None)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    async def _send(self, method: Method, body: bytes | None) -> HttpAnswer:
        prepared = self._fresh(method)
        if prepared is None:
            async with self._preparing:
                prepared = self._fresh(method) or await self._renew(method)
        answer = await self._pool.send(method, prepared.target, body)
        # A 401 may mean that a token was revoked before its time; the SDK gets the chance to fetch another one.
        if not answer.good:
            self._prepared.pop(method, None)
        return answer

    def _fresh(self, method: Method) -> _Prepared | None:
        prepared = self._prepared.get(method)
        return prepared if prepared is not None and time.monotonic() <= prepared.until else None

    async def _renew(self, method: Method) -> _Prepared:
        # Measured from before the preparation, which may take seconds: the token is as old as its request.
        until = time.monotonic() + PREPARED_SECONDS
        with self._failures.translate():
            request = await self._prepare(method)
        target = self._pool.target(str(request.url), request.headers.multi_items())
        prepared = self._prepared[method] = _Prepared(target, until)
        return prepared
