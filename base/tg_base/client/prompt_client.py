"""Caller -> prompt service: a typed client."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from tg_base.client.client import DEFAULT_TIMEOUT_SECONDS, Client
from tg_schema import PromptRequest, PromptResponse, encode


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
