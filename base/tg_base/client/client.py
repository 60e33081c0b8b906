"""Caller -> requestor: one service of one flow, typed."""

from contextlib import AbstractAsyncContextManager
from typing import Generic

from tg_base.client.requestor import Requestor
from tg_base.client.response_stream import ResponseStream
from tg_base.protocol import Route
from tg_schema.answer_collector import AnswerCollector
from tg_schema.service_spec import Req, Resp

DEFAULT_TIMEOUT_SECONDS = 300.0
"""Seconds until the first record, and of silence between two, unless the caller says otherwise."""


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

    def stream(
        self, request: Req, *, timeout: float = DEFAULT_TIMEOUT_SECONDS, total: float | None = None
    ) -> AbstractAsyncContextManager[ResponseStream[Resp]]:
        """Enter to ask, iterate to read, leave to stop the work. Arguments and errors as `Requestor.stream`."""
        return self._requestor.stream(self.route, request, timeout=timeout, total=total, bounded=self._bounded)

    async def call(self, request: Req, *, timeout: float = DEFAULT_TIMEOUT_SECONDS, total: float | None = None) -> Resp:
        """Ask and wait for the whole answer as one record. Arguments: `Requestor.stream`.

        Raises:
            TooLarge: the answer is larger than any record may be; the work is stopped.
            TgError: the stream failed.
        """
        answer = AnswerCollector(self.route.spec.response.join)
        async with self.stream(request, timeout=timeout, total=total) as responses:
            async for record in responses:
                answer.add(record)
        return answer.records()[-1]
