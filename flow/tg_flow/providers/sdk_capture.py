"""An SDK's public call -> the HTTP answer to it, as it is, before the SDK reads it.

Some SDKs hide what a stream says when it goes wrong: they pass over events that they cannot read, or hand out an error
as an answer. Such an SDK does all that it does for a request (path, credentials, headers, the body's terms), sends it
through `CapturingTransport`, and never sees the answer. Works with httpx and with httpx2 alike.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from tg_base.wires.sdk_response import CONNECT_TIMEOUT, Response

_CLOCKS = {"connect": CONNECT_TIMEOUT, "read": None, "write": None, "pool": None}
"""For the HTTP client, in place of the SDK's: all but the first are the stream's guard's."""


class _Slot:
    """Where the answer to one call is kept."""

    response: Response | None = None


class _Captured(Exception):
    """Leads out of the SDK; carries nothing that could get into a log."""


_slot: ContextVar[_Slot] = ContextVar("slot")


class CapturingTransport:
    """Give it to an HTTP client as its `transport`; `client` is the one that sends, with its proxies and pool."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def handle_async_request(self, request: Any) -> Any:
        """Send, and leave the SDK with the answer."""
        request.extensions["timeout"] = _CLOCKS
        request.headers["Accept-Encoding"] = "identity"
        _slot.get().response = await self._client.send(request, stream=True, follow_redirects=False)
        raise _Captured

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def __aenter__(self) -> "CapturingTransport":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def captured(call: Callable[[], Awaitable[object]]) -> Response:
    """Let the SDK ask, and take the answer. Raises what the SDK raises where there is none."""
    slot = _Slot()
    token = _slot.set(slot)
    try:
        await call()
    except _Captured:
        pass
    except BaseException:
        if slot.response is not None:
            await slot.response.aclose()
        raise
    finally:
        _slot.reset(token)
    if slot.response is None:
        raise TypeError("the SDK did not send its request through the transport")
    return slot.response
