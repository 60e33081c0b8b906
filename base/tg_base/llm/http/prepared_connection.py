"""A provider's SDK prepares a request, our pool sends it: the SDK runs once a minute instead of for each request.

Some SDKs hide the errors within a stream, and all of them read without a limit. Therefore an SDK only gives a request's
address, credentials and headers. Our connections send it with a body of ours, and our decoders read the answer.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tg_base.llm.core import note_unsent
from tg_base.llm.http.answer import HttpAnswer
from tg_base.llm.http.failures import NO_FAILURES, Failures
from tg_base.llm.http.response import Method

if TYPE_CHECKING:
    from tg_base.llm.http.pool import HttpPool, HttpTarget

PREPARED_SECONDS = 60.0
"""Seconds for which a prepared request is reused; short, so that the SDK renews expiring credentials in time."""
ANSWERS, MODELS, EMBEDDINGS, COUNT = "answers", "models", "embeddings", "count_tokens"
"""The routes of most providers: streamed answers, the list of models, vectors, and the count of a prompt's tokens."""
_KEY_HEADERS: Final = ("Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key")


class RouteCall(msgspec.Struct, frozen=True):
    """A request for something other than an answer, or with headers of its own.

    Attributes:
        body: the body to post.
        route: which of the connection's routes it is for.
        headers: in addition to those that the SDK sets.
    """

    body: bytes | None
    route: str
    headers: tuple[tuple[str, str], ...] = ()


class _Recorded(BaseException):
    """Raised to leave the SDK's call stack; carries no data that the SDK might log."""

    # A BaseException: SDKs wrap an Exception in their own, and retry after some.


class SdkRecorder:
    """The `transport` of an SDK's HTTP client: keeps the SDK's request, and sends nothing. For httpx and httpx2.

    Args:
        keyless: remove the key from requests: an SDK sends one even to a server that needs none, for instance from
            the environment.
    """

    def __init__(self, *, keyless: bool = False) -> None:
        self._keyless = keyless
        self._recorded: Any = None

    async def record(self, call: Callable[[], Awaitable[object]]) -> Any:
        """The request that a call of the SDK would send; not to be called concurrently."""
        with suppress(_Recorded):
            await call()
        recorded, self._recorded = self._recorded, None
        if recorded is None:
            raise TypeError("the SDK did not send its request through the transport")
        return recorded

    async def handle_async_request(self, request: Any) -> Any:
        """Keep the request, and leave the SDK."""
        for name in _KEY_HEADERS if self._keyless else ():
            request.headers.pop(name, None)
        self._recorded = request
        raise _Recorded

    async def aclose(self) -> None:
        """Nothing is open."""


class _Prepared(msgspec.Struct, frozen=True):
    """A request without its body, and the monotonic time until which it may be reused."""

    target: "HttpTarget"
    until: float


class PreparedConnection:
    """An SDK's client that only prepares requests, and the connections that send them.

    Args:
        recorder: the transport of the SDK's HTTP client.
        calls: by route, the call of the SDK whose request has the route's address and headers.
        pool: sends the requests.
        failures: the SDK's exceptions for missing credentials.
    """

    def __init__(
        self,
        recorder: SdkRecorder,
        calls: Mapping[str, Callable[[], Awaitable[object]]],
        pool: "HttpPool",
        failures: Failures = NO_FAILURES,
    ) -> None:
        self._recorder = recorder
        self._calls = calls
        self._pool = pool
        self._failures = failures
        self._prepared: dict[str, _Prepared] = {}
        self._preparing = asyncio.Lock()

    def post(self, sent: bytes | RouteCall) -> Awaitable[HttpAnswer]:
        """See `SdkConnection`; bytes are the body of a request for an answer."""
        return self._send("POST", sent if isinstance(sent, RouteCall) else RouteCall(sent, ANSWERS))

    def models(self) -> Awaitable[HttpAnswer]:
        """See `SdkConnection`."""
        return self._send("GET", RouteCall(None, MODELS))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    async def _send(self, method: Method, call: RouteCall) -> HttpAnswer:
        prepared = self._fresh(call.route)
        if prepared is None:
            note_unsent()
            async with self._preparing:
                prepared = self._fresh(call.route) or await self._renew(call.route)
        answer = await self._pool.send(method, prepared.target, call.body, call.headers)
        # A 401 may mean that a token was revoked before its time; the SDK gets the chance to fetch another one.
        if not answer.good:
            self._prepared.pop(call.route, None)
        return answer

    def _fresh(self, route: str) -> _Prepared | None:
        prepared = self._prepared.get(route)
        return prepared if prepared is not None and time.monotonic() <= prepared.until else None

    async def _renew(self, route: str) -> _Prepared:
        # Measured from before the preparation, which may take seconds: the token is as old as its request.
        until = time.monotonic() + PREPARED_SECONDS
        with self._failures.translate():
            request = await self._recorder.record(self._calls[route])
        target = self._pool.target(str(request.url), request.headers.multi_items())
        prepared = self._prepared[route] = _Prepared(target, until)
        return prepared
