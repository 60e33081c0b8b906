"""Caller -> requestor: one service of one flow, typed."""

from contextlib import AbstractAsyncContextManager
from typing import Generic

from tg_base.requestor import Requestor
from tg_base.response_stream import ResponseStream
from tg_base.route import Route
from tg_schema.service_spec import Req, Resp

TIMEOUT = 300.0
"""Seconds for a whole answer, unless the caller says otherwise (seed)."""


class Client(Generic[Req, Resp]):
    """Ask one service of one flow.

    Args:
        requestor: this process's end of the bus.
        route: where to ask.
        bounded: as `Requestor.stream`.
    """

    def __init__(self, requestor: Requestor, route: Route[Req, Resp], *, bounded: bool = False) -> None:
        self.route = route
        self._bounded = bounded
        self._requestor = requestor

    def stream(self, request: Req, *, timeout: float = TIMEOUT) -> AbstractAsyncContextManager[ResponseStream[Resp]]:
        """Enter to ask, iterate to read, leave (at any time) to stop the work. Raises as `Requestor.stream`."""
        return self._requestor.stream(self.route, request, timeout=timeout, bounded=self._bounded)

    async def call(self, request: Req, *, timeout: float = TIMEOUT) -> Resp:
        """Ask and wait for the whole answer as one record.

        Raises:
            TgError: the stream failed.
        """
        async with self.stream(request, timeout=timeout) as responses:
            records = [record async for record in responses]
        return self.route.spec.response.joined(records)[-1]
