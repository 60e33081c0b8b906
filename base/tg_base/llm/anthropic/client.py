"""Claude -> Anthropic's SDK -> socket: how its clients are called. The rooms make the clients, and import the SDK."""

from collections.abc import Awaitable
from functools import partial
from typing import Any

import msgspec

from tg_base.llm.http import Failures, HttpAnswer
from tg_base.llm.http.sdk_capture import capture


class Sdk(msgspec.Struct, frozen=True):
    """What we need of the SDK besides a client.

    Attributes:
        response: the class of its HTTP responses.
        stream: the class of its streams.
        failures: its exceptions where it has no credentials.
    """

    response: type
    stream: object
    failures: Failures = Failures()


class ClaudeConnection:
    """A client of the SDK (for Anthropic's own API, or for another host of Claude), asked for bytes.

    Its HTTP client has a `CapturingTransport`. The SDK knows the way and the credentials; the events are read by us,
    because its own reading takes an end of the stream without its terminal marker for a success.
    """

    def __init__(self, client: Any, sdk: Sdk, headers: dict[str, Any] | None = None) -> None:
        self._client = client
        self._sdk = sdk
        self._headers = headers or {}
        self.failures = sdk.failures

    def post(self, body: dict[str, Any]) -> Awaitable[HttpAnswer]:
        """Ask for a message as a stream; any status is an answer."""
        asked = partial(
            self._client.post,
            "/v1/messages",
            body=body,
            cast_to=self._sdk.response,
            options={"headers": self._headers},
            stream=True,
            stream_cls=self._sdk.stream,
        )
        return capture(asked)

    def models(self) -> Awaitable[HttpAnswer]:
        """Ask for the list of models; any status is an answer."""
        options = {"headers": self._headers, "params": {"limit": 1000}}
        return capture(partial(self._client.get, "/v1/models", cast_to=self._sdk.response, options=options))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()
