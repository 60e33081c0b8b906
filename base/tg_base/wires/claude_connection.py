"""Claude -> Anthropic's SDK -> socket: how its clients are called. The rooms make the clients, and import the SDK."""

from collections.abc import Awaitable
from typing import Any, cast

import msgspec

from tg_base.wires.sdk_response import Failures, Response


class Sdk(msgspec.Struct, frozen=True):
    """What we need of the SDK besides a client.

    Attributes:
        refused: its exception for a status that is not 2xx; has `response`.
        response: the class of its HTTP responses.
        stream: the class of its streams.
        failures: its other exceptions.
    """

    refused: type[Exception]
    response: type
    stream: object
    failures: Failures


class ClaudeConnection:
    """A client of the SDK (for Anthropic's own API, or for another host of Claude), asked for bytes.

    The SDK knows the way and the credentials; the events are read by us, because its own reading takes an end of the
    stream without its terminal marker for a success.
    """

    def __init__(self, client: Any, sdk: Sdk, headers: dict[str, Any] | None = None) -> None:
        self._client = client
        self._sdk = sdk
        self._headers = {"Accept-Encoding": "identity", **(headers or {})}
        self.failures = sdk.failures

    async def post(self, body: dict[str, Any]) -> Response:
        """Ask for a message as a stream; any status is an answer."""
        sdk = self._sdk
        asked = self._client.post(
            "/v1/messages",
            body=body,
            cast_to=sdk.response,
            options={"headers": self._headers},
            stream=True,
            stream_cls=sdk.stream,
        )
        return await self._answered(asked)

    async def models(self) -> Response:
        """Ask for the list of models; any status is an answer."""
        options = {"headers": self._headers, "params": {"limit": 1000}}
        return await self._answered(self._client.get("/v1/models", cast_to=self._sdk.response, options=options))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _answered(self, asked: Awaitable[Any]) -> Response:
        try:
            return cast(Response, await asked)
        except self._sdk.refused as error:
            return cast(Response, vars(error)["response"])
