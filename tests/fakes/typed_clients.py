"""Clients of text completion and of prompts that give and take texts."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from tg_base.client import Client, prompt_request
from tg_schema import PromptRequest, PromptResponse, TextCompletionRequest, TextCompletionResponse

DEFAULT_TIMEOUT_SECONDS = 300.0


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
