"""Caller -> text completion: a typed client."""

from collections.abc import AsyncGenerator

from tg_base.client.client import DEFAULT_TIMEOUT_SECONDS, Client
from tg_schema import TextCompletionRequest, TextCompletionResponse


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
