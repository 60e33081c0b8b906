"""A provider's SDK prepares a request, our pool sends it: the SDK works once a minute, not for each request."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tg_base.llm.http.failures import NO_FAILURES, Failures
from tg_base.llm.http.response import HttpAnswer, Method

if TYPE_CHECKING:
    from tg_base.llm.http.pool import HttpPool

PREPARED_SECONDS = 60.0
"""Seconds that a prepared request is used, so that credentials with an end are renewed by the SDK in time."""


class SdkRequest(Protocol):
    """What we need of a request of the SDK's HTTP library, httpx or httpx2."""

    @property
    def url(self) -> Any:
        """Where it goes."""

    @property
    def headers(self) -> Any:
        """By name in any case."""


Prepare = Callable[[Method], Awaitable[SdkRequest]]
"""Lets the SDK do all of its work on a request, up to the network: POST asks for an answer, GET for the models."""


class _Prepared(msgspec.Struct, frozen=True):
    """All of a request but its body, and until when (on the monotonic clock) it may be used."""

    url: str
    headers: tuple[tuple[str, str], ...]
    until: float


class PreparedConnection:
    """A client of an SDK that only prepares, and the connections that send.

    Args:
        prepare: see `Prepare`; called once at a time.
        pool: sends.
        failures: of `prepare`, where it has no credentials.
    """

    def __init__(self, prepare: Prepare, pool: "HttpPool", failures: Failures = NO_FAILURES) -> None:
        self._prepare = prepare
        self._pool = pool
        self._failures = failures
        self._prepared: dict[Method, _Prepared] = {}
        self._preparing = asyncio.Lock()

    async def post(self, body: bytes) -> HttpAnswer:
        """See `SdkConnection`."""
        return await self._send("POST", body)

    async def models(self) -> HttpAnswer:
        """See `SdkConnection`."""
        return await self._send("GET", None)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    async def _send(self, method: Method, body: bytes | None) -> HttpAnswer:
        prepared = self._fresh(method)
        if prepared is None:
            async with self._preparing:
                prepared = self._fresh(method) or await self._renew(method)
        answer = await self._pool.ask(method, prepared.url, prepared.headers, body)
        if not answer.good:
            self._prepared.pop(method, None)
        return answer

    def _fresh(self, method: Method) -> _Prepared | None:
        prepared = self._prepared.get(method)
        return prepared if prepared is not None and time.monotonic() <= prepared.until else None

    async def _renew(self, method: Method) -> _Prepared:
        until = time.monotonic() + PREPARED_SECONDS
        with self._failures.translate():
            request = await self._prepare(method)
        prepared = self._prepared[method] = _Prepared(str(request.url), tuple(request.headers.multi_items()), until)
        return prepared
