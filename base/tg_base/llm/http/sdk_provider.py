"""TextCompletionRequest -> a provider's own SDK and wire -> LlmChunks: what those providers share.

A provider is its request's body, its answer's decoder and its connection; the rest is here.
"""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from importlib import import_module
from typing import Annotated, Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

import msgspec
from typing_extensions import override

from tg_base.llm import KeyedConnection, LlmChunk, LlmService, ProviderOptions, RemoteOptions
from tg_base.llm.http.response import ErrorDetail, Failures, HttpAnswer, no_detail, open_body, read_whole_body
from tg_base.llm.http.stream_reader import EventDecoder, Frames, event_chunks
from tg_schema import ModelInfo, Sampling, TextCompletionRequest
from tg_schema.errors import Internal, ProtocolError, Timeout

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoding of foreign JSON raises."""


class SdkOptions(RemoteOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of such a provider.

    Attributes:
        upstream_model: the model's name at the provider; ours where absent.
        temperature: for requests that do not say.
        max_tokens: the bound on an answer's tokens, for requests that do not say.
    """

    upstream_model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None


AnyOptions = TypeVar("AnyOptions", bound=SdkOptions)


class SdkConnection(Protocol):
    """An SDK's client, asked for bytes.

    Attributes:
        failures: its exceptions where it has no credentials.
    """

    failures: Failures

    def post(self, body: dict[str, Any]) -> Awaitable[HttpAnswer]:
        """Ask for an answer as a stream; any status is an answer."""

    def models(self) -> Awaitable[HttpAnswer]:
        """Ask for the list of models; any status is an answer."""

    async def aclose(self) -> None:
        """Close the connections."""


class SdkWire(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from provider to provider, besides a request's body.

    Attributes:
        connection: module with `connection(base_url, key)`, which imports the SDK and takes a while; run in a thread.
        decoder: of one answer.
        listed: the models in the body of a list; raises what the decoding of JSON raises.
        error_detail: what the body of an error says besides its status.
        frames: takes one answer's body apart, where it is not one of server-sent events.
    """

    connection: str
    decoder: Callable[[], EventDecoder]
    listed: Callable[[bytes], tuple[ModelInfo, ...]]
    error_detail: Callable[[bytes], ErrorDetail] = no_detail
    frames: Callable[[], Frames] | None = None


class SdkProvider(LlmService, Generic[AnyOptions]):
    """A provider with an SDK and a wire of its own. A subclass has `Options`, `wire`, `features` and `body`."""

    Options: ClassVar[type[ProviderOptions]] = SdkOptions
    wire: ClassVar[SdkWire]

    def __init__(self, model: str, options: AnyOptions, connection: KeyedConnection[SdkConnection]) -> None:
        super().__init__(model, options)
        self.options = options
        self.upstream_model = options.upstream_model or model
        self._connection = connection

    @classmethod
    @override
    async def open(cls, model: str, options: ProviderOptions) -> Self:
        if not isinstance(options, SdkOptions) or not isinstance(options, cls.Options):
            raise Internal("this provider was opened with the options of another one")
        url, key = options.url(), options.key()
        module = await asyncio.to_thread(import_module, cls.wire.connection)
        connection = await KeyedConnection[SdkConnection].open_in_thread(key, partial(module.connection, url))
        return cls(model, cast(AnyOptions, options), connection)

    @abstractmethod
    def body(self, request: TextCompletionRequest) -> dict[str, Any]:
        """What to ask. Raises BadRequest where the request has a form that this wire does not know."""

    def sampling(self, request: TextCompletionRequest) -> Sampling:
        """The request's sampling, with the configuration's values for what it leaves open."""
        said, ours = request.sampling or Sampling(), self.options
        return msgspec.structs.replace(
            said,
            temperature=ours.temperature if said.temperature is None else said.temperature,
            max_tokens=ours.max_tokens if said.max_tokens is None else said.max_tokens,
        )

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        wire = self.wire
        async with (
            self._connection.lend() as connection,
            open_body(connection.post(self.body(request)), connection.failures, wire.error_detail) as read,
            aclosing(event_chunks(read, wire.decoder(), frames=wire.frames() if wire.frames else None)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        wire = self.wire
        try:
            async with asyncio.timeout(self.clocks.first_token), self._connection.lend() as connection:
                body = await read_whole_body(connection.models(), connection.failures, wire.error_detail)
        except TimeoutError:
            raise Timeout("the provider took too long to list its models; ask again") from None
        try:
            return wire.listed(body)
        except UNREADABLE:
            raise ProtocolError("the provider's list of models cannot be read; check base_url") from None

    @override
    async def aclose(self) -> None:
        await self._connection.aclose()
