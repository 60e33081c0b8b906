"""TextCompletionRequest -> a provider's own SDK and wire format -> LlmChunks: the base of those providers.

A provider supplies a request's body, a decoder of the answer and a client; the rest is here.
"""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar, Generic, Protocol, Self

import msgspec
import structlog
from typing_extensions import TypeVar, override

from tg_base.llm.core import LlmChunk, PassOn
from tg_base.llm.http import (
    EMBEDDINGS,
    UNREADABLE,
    USAGE_TIMEOUT_SECONDS,
    ErrorDetail,
    EventDecoder,
    Frames,
    HttpAnswer,
    RouteCall,
    begin_body,
    event_chunks,
    no_detail,
    read_whole_body,
)
from tg_base.llm.keyed_connection import KeyedConnection
from tg_base.llm.large_request import RequestParts, join_request
from tg_base.llm.operations import Embeddings
from tg_base.llm.options import ModelOptions, ProviderOptions, RemoteOptions
from tg_base.llm.prepared_request import PreparedRequest, prepare_request
from tg_base.llm.service import LlmService
from tg_base.runtime import Unpicklable, start_daemon_thread
from tg_base.telemetry import trace
from tg_schema import ModelInfo, TextCompletionRequest
from tg_schema.deltas import add_counts
from tg_schema.errors import BadRequest, ProtocolError, ProviderAuth
from tg_schema.features import describe_missing

log = structlog.get_logger()

LIST_TIMEOUT_SECONDS = 15.0
"""Timeout of a list of models in seconds; `clocks.first_token` if that is shorter."""

MAX_CALL_TEXTS = 32
"""Texts of one call for vectors: its answer is read as a whole, and providers have limits of their own."""

Answer = TypeVar("Answer")
SdkOptions = TypeVar("SdkOptions", bound=ModelOptions, default=RemoteOptions)


class SdkConnection(Protocol):
    """An SDK's client that returns raw answers: a `PreparedConnection`, or your own."""

    def post(self, body: Any) -> Awaitable[HttpAnswer]:
        """Request a streamed answer and return it whatever its status. Raises TgError if there is none."""

    def models(self) -> Awaitable[HttpAnswer]:
        """Request the list of models and return the answer whatever its status. Raises as `post`."""

    async def aclose(self) -> None:
        """Close the connections."""


class SdkWire(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of one kind of provider.

    Attributes:
        client: module with `connect(endpoint)`, which returns an `SdkConnection`. Importing and connecting take
            seconds and run in a thread.
        listed: parses the list of models; raises one of `UNREADABLE`. None = the provider has no such list.
        error_detail: parses the body of an error; raises as `listed`.
        frames: makes a splitter for an answer's body; None = server-sent events.
        embedded: parses the answer to a request for vectors; raises as `listed`. None = the provider has none.
    """

    client: str
    listed: Callable[[bytes], tuple[ModelInfo, ...]] | None = None
    error_detail: Callable[[bytes], ErrorDetail] = no_detail
    frames: Callable[[], Frames] | None = None
    embedded: Callable[[bytes], Embeddings] | None = None


class SdkProvider(LlmService[SdkOptions], Generic[SdkOptions]):
    """A provider with its own SDK and wire format. A subclass defines `wire`, `features`, `body` and `decoder`.

    Without a type argument its options are `RemoteOptions`. Options of its own derive from these or from
    `AddressOptions`; with any others the provider overrides `open`, which needs an address.

    Attributes:
        usage_patience: seconds to wait for the usage of a finished answer.
    """

    Options: ClassVar[type[ProviderOptions]] = RemoteOptions
    wire: ClassVar[SdkWire]

    def __init__(self, model: str, options: SdkOptions, connection: KeyedConnection[SdkConnection]) -> None:
        super().__init__(model, options)
        self.usage_patience = USAGE_TIMEOUT_SECONDS
        self._connection = connection

    @classmethod
    @override
    async def open(cls, model: str, options: Any) -> Self:
        try:
            # Check before the import, which takes seconds, so that a wrong option is reported at once.
            endpoint, key = options.endpoint(options.upstream_name(model)), options.key()
        except ProviderAuth:
            # Report a missing package before a missing key, because the missing package would be the next error anyway.
            await start_daemon_thread(lambda: import_module(cls.wire.client), f"import {cls.wire.client}")
            raise
        connection = await KeyedConnection[SdkConnection].open(
            key, lambda now: import_module(cls.wire.client).connect(replace(endpoint, key=now))
        )
        return cls(model, options, connection)

    @abstractmethod
    def body(self, request: TextCompletionRequest) -> Any:
        """The argument of the client's `post`: for a `PreparedConnection` the JSON, or a `RouteCall` with it.

        Raises:
            BadRequest: this wire format cannot express the request; the message says why.
        """

    @abstractmethod
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        """A decoder for the answer to this request."""

    def needs_prompt(self, request: TextCompletionRequest) -> bool:
        """Whether the provider needs the prompt beyond `body`; then large requests are not prepared elsewhere."""
        return False

    @override
    def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        return self.stream_answer(request, lambda connection: connection.post(self._sent(request)))

    def stream_answer(
        self, request: TextCompletionRequest, ask: Callable[[Any], Awaitable[HttpAnswer]]
    ) -> AsyncGenerator[LlmChunk, PassOn | None]:
        """The chunks of the answer to a request that `ask` sends over a borrowed connection.

        Raises:
            TgError: as `generate_content_stream`.
        """
        wire = self.wire
        frames = wire.frames() if wire.frames else None
        asked = _AskedBody(self._connection, ask, wire.error_detail)
        # Return the reading loop itself: each chunk would also pass a generator around it.
        return event_chunks(asked, self.decoder(request), self.usage_patience, frames, request.answers)

    def _sent(self, request: TextCompletionRequest) -> Any:
        return request.sent if isinstance(request, PreparedRequest) else self.body(request)

    def count_body(self, request: TextCompletionRequest) -> Any:
        """The argument of the client's `post` that counts a prompt's tokens, if the provider has "count_tokens".

        It may be called in another process. Raises as `body`.
        """
        raise BadRequest(describe_missing(("count_tokens",)))

    async def count_by(self, request: TextCompletionRequest, read: Callable[[bytes], int]) -> int:
        """Count with `count_body`; `read` and what it raises as in `read_answer`."""
        sent = request.sent if isinstance(request, PreparedRequest) else self.count_body(request)
        return await self.read_answer(sent, read)

    @override
    async def read(self, body: bytes) -> TextCompletionRequest:
        try:
            caller = trace.find_caller()
            read = await self._workers.call(prepare_request, type(self), self.model, self.options, body, caller)
        except Unpicklable as reason:
            log.warning("provider.large_request_here", provider=type(self).__name__, reason=str(reason))
            return await super().read(body)
        return await join_request(read) if isinstance(read, RequestParts) else read

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

    def embedding_body(self, request: TextCompletionRequest) -> bytes:
        """The body of a request for the vectors of `texts` or `id_lists`; override it if `wire` has `embedded`."""
        raise BadRequest(describe_missing(("embed",)))

    @override
    async def embed(self, request: TextCompletionRequest) -> Embeddings:
        read = self.wire.embedded
        if read is None:
            return await super().embed(request)
        found: list[Embeddings] = []
        for start in range(0, max(len(request.texts), len(request.id_lists)), MAX_CALL_TEXTS):
            part = slice(start, start + MAX_CALL_TEXTS)
            some = msgspec.structs.replace(request, texts=request.texts[part], id_lists=request.id_lists[part])
            found.append(await self.read_answer(RouteCall(self.embedding_body(some), EMBEDDINGS), read))
        vectors = tuple([vector for each in found for vector in each.vectors])
        return Embeddings(vectors, add_counts(each.in_token for each in found))

    async def read_answer(self, sent: Any, read: Callable[[bytes], Answer]) -> Answer:
        """Send a request to the client's `post`, and read an answer that is not streamed.

        Args:
            sent: the argument of `post`.
            read: parses the body; raises one of `UNREADABLE`.

        Raises:
            TgError: as `generate_content`.
        """
        async with self._connection.lend() as connection:
            body = await read_whole_body(connection.post(sent), self.wire.error_detail, self.clocks.first_token)
        try:
            return read(body)
        except UNREADABLE:
            raise ProtocolError("the provider's answer cannot be read; check base_url") from None

    @override
    async def aclose(self) -> None:
        await super().aclose()
        await self._connection.aclose()


class _AskedBody:
    """The body of an answer, and the connection lent for it."""

    # Not a generator, which would take 600 bytes of each stream.
    __slots__ = ("_answer", "_ask", "_error_detail", "_keyed", "_lease")

    def __init__(
        self,
        keyed: KeyedConnection[SdkConnection],
        ask: Callable[[SdkConnection], Awaitable[HttpAnswer]],
        error_detail: Callable[[bytes], ErrorDetail],
    ) -> None:
        self._keyed = keyed
        self._ask = ask
        self._error_detail = error_detail

    async def __aenter__(self) -> HttpAnswer:
        self._lease = lease = await self._keyed.take()
        answer = None
        try:
            answer = await begin_body(self._ask(lease.connection), self._error_detail)
        finally:
            # `_ask` refers to the request, whose prompt may be long; a retry makes another body.
            del self._ask
            if answer is None:
                await self._keyed.give_back(lease)
        self._answer = answer
        return answer

    async def __aexit__(self, *_: object) -> None:
        self._answer.close()
        await self._keyed.give_back(self._lease)
