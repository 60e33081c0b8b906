"""An SDK's public call -> the HTTP answer to it, as it is, before the SDK reads it.

Some SDKs hide what a stream says when it goes wrong, and all of them read as much as they are sent. An SDK does all
that it does for a request (path, credentials, headers, the body's terms), `CapturingTransport` sends it over our
connections, and the SDK never sees the answer. Works with httpx and with httpx2 alike.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from yarl import URL

from tg_base.llm.http.response import HttpAnswer
from tg_schema import TgError

if TYPE_CHECKING:
    from tg_base.llm.http.pool import HttpPool


class _Slot:
    """Where the answer to one call is kept, or why there is none."""

    answer: HttpAnswer | None = None
    error: TgError | None = None


class _CapturedError(Exception):
    """Leads out of the SDK; carries nothing that could get into a log."""


_slot: ContextVar[_Slot] = ContextVar("slot")


class CapturingTransport:
    """Give it to an HTTP client as its `transport`.

    Args:
        pool: sends.
        keyless: the server needs no key; an SDK shows one all the same, be it the environment's.
    """

    def __init__(self, pool: "HttpPool", *, keyless: bool = False) -> None:
        self._pool = pool
        self._keyless = keyless

    async def handle_async_request(self, request: Any) -> Any:
        """Send, and leave the SDK with the answer."""
        slot = _slot.get()
        body = await request.aread()
        url = URL(str(request.url), encoded=True)
        if self._keyless:
            request.headers.pop("Authorization", None)
        try:
            slot.answer = await self._pool.ask(request.method, url, request.headers.multi_items(), body or None)
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


async def capture(call: Callable[[], Awaitable[object]]) -> HttpAnswer:
    """Let the SDK ask, and take the answer.

    Raises:
        TgError: of `HttpPool.ask`.
        Exception: what the SDK raises where it does not ask.
    """
    slot = _Slot()
    token = _slot.set(slot)
    try:
        await call()
    except Exception:
        # An SDK may wrap what leads out of it; what matters is whether it has asked.
        if slot.answer is None and slot.error is None:
            raise
    except BaseException:
        if slot.answer is not None:
            slot.answer.close()
        raise
    finally:
        _slot.reset(token)
    if slot.error is not None:
        raise slot.error
    if slot.answer is None:
        raise TypeError("the SDK did not send its request through the transport")
    return slot.answer
