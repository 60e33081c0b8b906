"""Caller -> requestor: typed calls of one service of one flow, of text completion and of prompts."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic

import msgspec

from tg_base.client.requestor import Requestor
from tg_base.client.response_stream import ResponseStream
from tg_base.protocol import Route
from tg_schema import PromptRequest, PromptResponse, TextCompletionRequest, TextCompletionResponse, encode
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


class LlmClient(Client[TextCompletionRequest, TextCompletionResponse]):
    """Text completion over the bus."""

    async def request(
        self, system: str, prompt: str, timeout: float = DEFAULT_TIMEOUT_SECONDS, streaming: bool = False
    ) -> str:
        """The whole answer's text; with `streaming`, the chunks are sent as they come and joined here.

        Raises:
            TgError: no complete answer came within `timeout` seconds, or the provider failed.
        """
        request = TextCompletionRequest(system=system, prompt=prompt, streaming=streaming)
        return (await self.call(request, timeout=timeout, total=timeout)).response or ""

    async def request_stream(
        self, system: str, prompt: str, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> AsyncGenerator[str, None]:
        """Yield the answer's text as it comes. Use `contextlib.aclosing` if the loop may be left early.

        Raises:
            TgError: nothing came for `timeout` seconds, or the provider failed; nothing follows it.
        """
        request = TextCompletionRequest(system=system, prompt=prompt, streaming=True)
        async with self.stream(request, timeout=timeout) as responses:
            async for response in responses:
                if response.response:
                    yield response.response


def prompt_request(template: str, variables: Mapping[str, Any], *, streaming: bool) -> PromptRequest:
    """The record for a template and its variables, each encoded as JSON text."""
    terms = {name: encode(value).decode() for name, value in variables.items()}
    return PromptRequest(id=template, terms=terms, streaming=streaming)


class PromptClient(Client[PromptRequest, PromptResponse]):
    """Prompts over the bus."""

    async def request(
        self,
        template: str,
        variables: Mapping[str, Any],
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        streaming: bool = False,
    ) -> Any:
        """The answer: text, or the object of a template with a JSON response.

        Raises:
            TgError: no complete answer came within `timeout` seconds, or something failed.
        """
        asked = prompt_request(template, variables, streaming=streaming)
        response = await self.call(asked, timeout=timeout, total=timeout)
        return response.text or "" if response.object is None else msgspec.json.decode(response.object)

    async def request_stream(
        self, template: str, variables: Mapping[str, Any], timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> AsyncGenerator[str, None]:
        """Yield the answer's text as it comes; a JSON response comes whole.

        Raises:
            TgError: nothing came for `timeout` seconds, or something failed; nothing follows it.
        """
        async with self.stream(prompt_request(template, variables, streaming=True), timeout=timeout) as responses:
            async for response in responses:
                if piece := response.text or response.object:
                    yield piece
