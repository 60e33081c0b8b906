"""Caller -> requestor: typed calls of one service of one flow."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic

from tg_base.client.requestor import Requestor
from tg_base.client.response_stream import ResponseStream
from tg_base.protocol import Route
from tg_schema import PromptRequest, encode
from tg_schema.answer_collector import AnswerCollector
from tg_schema.service_spec import Req, Resp

DEFAULT_TIMEOUT_SECONDS = 300.0
"""Default of the seconds until the first record, and of silence between two."""


class Client(Generic[Req, Resp]):
    """Calls one service of one flow.

    Args:
        requestor: this process's requestor.
        route: the service and its flow.
        bounded: as `Requestor.stream`.
    """

    def __init__(self, requestor: Requestor, route: Route[Req, Resp], *, bounded: bool = False) -> None:
        self.route = route
        self._bounded = bounded
        self._requestor = requestor

    def stream(
        self, request: Req, *, timeout: float = DEFAULT_TIMEOUT_SECONDS, total: float | None = None
    ) -> AbstractAsyncContextManager[ResponseStream[Resp]]:
        """Enter to ask, iterate to read, leave to stop the work. Arguments and errors: see `Requestor.stream`."""
        return self._requestor.stream(self.route, request, timeout=timeout, total=total, bounded=self._bounded)

    async def call(self, request: Req, *, timeout: float = DEFAULT_TIMEOUT_SECONDS, total: float | None = None) -> Resp:
        """Ask, and return the whole answer as one record. Arguments: see `Requestor.stream`.

        Raises:
            TooLarge: the answer exceeds the size limit of a record; the work is stopped.
            TgError: the stream failed.
        """
        spec = self.route.spec
        answer = AnswerCollector(spec.response.join)
        async with self.stream(request, timeout=timeout, total=total) as responses:
            async for record in responses:
                answer.add(record)
        whole: Resp = spec.summarize(answer.records())
        return whole


def prompt_request(template: str, variables: Mapping[str, Any], *, streaming: bool) -> PromptRequest:
    """The record for a template and its variables, each encoded as JSON text."""
    terms = {name: encode(value).decode() for name, value in variables.items()}
    return PromptRequest(id=template, terms=terms, streaming=streaming)
