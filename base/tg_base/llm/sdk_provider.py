"""TextCompletionRequest -> a provider's own SDK and wire -> LlmChunks: what those providers share.

A provider is its request's body, its answer's decoder and its client; the rest is here.
"""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar, Generic, Protocol, Self

import msgspec
from typing_extensions import TypeVar, override

from tg_base.llm.core import LlmChunk
from tg_base.llm.http import (
    UNREADABLE,
    USAGE_TIMEOUT_SECONDS,
    ErrorDetail,
    EventDecoder,
    Frames,
    HttpAnswer,
    event_chunks,
    no_detail,
    open_body,
    read_whole_body,
)
from tg_base.llm.keyed_connection import KeyedConnection
from tg_base.llm.options import UrlOptions
from tg_base.llm.service import LlmService
from tg_schema import ModelInfo, TextCompletionRequest
from tg_schema.errors import ProtocolError

LIST_TIMEOUT_SECONDS = 15.0
"""Seconds that a list of models may take; fewer where the provider's first clock has fewer."""

SdkOptions = TypeVar("SdkOptions", bound=UrlOptions, default=UrlOptions)


class SdkConnection(Protocol):
    """An SDK's client, asked for bytes: a `CapturedConnection`, a `PreparedConnection`, or one of your own."""

    def post(self, body: Any) -> Awaitable[HttpAnswer]:
        """Ask for an answer as a stream; any status is an answer. Raises TgError where there is none."""

    def models(self) -> Awaitable[HttpAnswer]:
        """Ask for the list of models; any status is an answer. Raises as `post`."""

    async def aclose(self) -> None:
        """Close the connections."""


class SdkWire(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for all requests to one kind of provider.

    Attributes:
        client: module with `connect(endpoint)`, which imports the SDK and takes a while; it is run in a thread, and
            makes an `SdkConnection`.
        listed: the models in the body of a list; raises one of `UNREADABLE`. None = the provider has no such list.
        error_detail: what the body of an error says besides its status; raises as `listed`.
        frames: takes one answer's body apart, where it is not one of server-sent events.
    """

    client: str
    listed: Callable[[bytes], tuple[ModelInfo, ...]] | None = None
    error_detail: Callable[[bytes], ErrorDetail] = no_detail
    frames: Callable[[], Frames] | None = None


class SdkProvider(LlmService[SdkOptions], Generic[SdkOptions]):
    """A provider with an SDK and a wire of its own. A subclass has `wire`, `features`, `body` and `decoder`.

    Attributes:
        usage_patience: seconds that a finished answer waits for its usage.
    """

    wire: ClassVar[SdkWire]

    def __init__(self, model: str, options: SdkOptions, connection: KeyedConnection[SdkConnection]) -> None:
        super().__init__(model, options)
        self.usage_patience = USAGE_TIMEOUT_SECONDS
        self._connection = connection

    @classmethod
    @override
    async def open(cls, model: str, options: SdkOptions) -> Self:
        endpoint, key = options.endpoint(options.upstream_name(model)), options.key()
        module = await asyncio.to_thread(import_module, cls.wire.client)
        connection = await KeyedConnection[SdkConnection].open_in_thread(
            key, lambda now: module.connect(replace(endpoint, key=now))
        )
        return cls(model, options, connection)

    @abstractmethod
    def body(self, request: TextCompletionRequest) -> Any:
        """What to ask, as the client's `post` takes it.

        Raises:
            BadRequest: the request has a form that this wire does not know; the message says which.
        """

    @abstractmethod
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        """Reads the answer to this request."""

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        wire = self.wire
        frames = wire.frames() if wire.frames else None
        async with (
            self._connection.lend() as connection,
            open_body(connection.post(self.body(request)), wire.error_detail) as read,
            aclosing(event_chunks(read, self.decoder(request), self.usage_patience, frames)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        wire = self.wire
        if wire.listed is None:
            return await super().models()
        patience = min(LIST_TIMEOUT_SECONDS, self.clocks.first_token)
        async with self._connection.lend() as connection:
            body = await read_whole_body(connection.models(), wire.error_detail, patience)
        try:
            return wire.listed(body)
        except UNREADABLE:
            raise ProtocolError("the provider's list of models cannot be read; check base_url") from None

    @override
    async def aclose(self) -> None:
        await self._connection.aclose()
