"""An SDK's public call -> the HTTP answer to it, as it is, before the SDK reads it.

Some SDKs hide what a stream says when it goes wrong, and all of them read as much as they are sent. An SDK does all
that it does for a request (path, credentials, headers, the body's terms), `CapturingTransport` sends it over our
connections, and the SDK never sees the answer. Works with httpx and with httpx2 alike.
"""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from contextvars import ContextVar
from functools import partial
from ssl import SSLContext
from typing import Any

from tg_base.llm.http.failures import NO_FAILURES, Failures
from tg_base.llm.http.open_pool import open_pool
from tg_base.llm.http.response import HttpAnswer
from tg_schema import TgError


class _Slot:
    """Where the answer to one call is kept, or why there is none."""

    answer: HttpAnswer | None = None
    error: TgError | None = None

    def close(self) -> None:
        if self.answer is not None:
            self.answer.close()


class _CapturedError(Exception):
    """Leads out of the SDK; carries nothing that could get into a log."""


_slot: ContextVar[_Slot] = ContextVar("slot")


class CapturingTransport:
    """Give it to an HTTP client as its `transport`.

    Args:
        tls: which certificates are trusted.
        keyless: the server needs no key; an SDK shows one all the same, be it the environment's.
    """

    def __init__(self, tls: SSLContext, *, keyless: bool = False) -> None:
        self._pool = open_pool(tls)
        self._keyless = keyless

    async def handle_async_request(self, request: Any) -> Any:
        """Send, and leave the SDK with the answer."""
        slot = _slot.get()
        body = await request.aread()
        if self._keyless:
            request.headers.pop("Authorization", None)
        try:
            slot.answer = await self._pool.ask(
                request.method, str(request.url), request.headers.multi_items(), body or None
            )
        except TgError as error:
            slot.error = error
        raise _CapturedError

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    async def __aenter__(self) -> "CapturingTransport":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class CapturedConnection:
    """An SDK's client whose calls end with the HTTP answer; its HTTP client has a `CapturingTransport`.

    Args:
        post: asks for an answer as a stream; is called with a request's body.
        models: asks for the list of models.
        close: closes the SDK's client.
        failures: of these calls, where the SDK has no credentials.
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
        """See `SdkConnection`."""
        return await self._capture(partial(self._post, body))

    async def models(self) -> HttpAnswer:
        """See `SdkConnection`."""
        return await self._capture(self._models)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._close()

    async def _capture(self, call: Callable[[], Awaitable[object]]) -> HttpAnswer:
        with self._failures.translate():
            return await capture(call)


async def capture(call: Callable[[], Awaitable[object]]) -> HttpAnswer:
    """Let the SDK ask, and take the answer.

    Raises:
        TgError: of `HttpPool.ask`.
        Exception: what the SDK raises where it does not ask.
    """
    slot = _Slot()
    with ExitStack() as cancelled:
        cancelled.callback(slot.close)
        token = _slot.set(slot)
        try:
            await call()
        except Exception:
            # An SDK may wrap what leads out of it; what matters is whether it has asked.
            if slot.answer is None and slot.error is None:
                raise
        finally:
            _slot.reset(token)
        cancelled.pop_all()
    if slot.error is not None:
        raise slot.error
    if slot.answer is None:
        raise TypeError("the SDK did not send its request through the transport")
    return slot.answer
