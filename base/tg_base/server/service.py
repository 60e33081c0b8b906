"""A service is an async generator of responses. It never touches the bus."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Generic

from tg_schema import ServiceSpec, decode
from tg_schema.errors import BadRequest
from tg_schema.features import Feature
from tg_schema.live import LivePool
from tg_schema.service_spec import Req, Resp


class Unreadable(BadRequest):
    """A message on the queue is not a request."""


def _announce_nowhere() -> None:
    """The default of `Service.announce`, until a processor sets it."""


class Service(ABC, Generic[Req, Resp]):
    """Answers requests of one kind. `Processor` runs it: one concurrent call of `on_request` for each request.

    A stream that is stopped early (the requestor disconnected, the process drains) raises `CancelledError` or
    `GeneratorExit` inside the generator. A service enters its resources with `async with` and needs no other code for
    cancellation.
    """

    spec: ClassVar[ServiceSpec]  # type: ignore[type-arg]
    capacity: int = 256
    """Requests that run concurrently; more stay in the queue, for any processor that is idle."""
    features: frozenset[Feature] = frozenset()
    """Optional features; announced with its presence."""
    cools: ClassVar[bool] = False
    """Whether its failures are announced, so that routes leave its model alone for a while."""
    provider: str = ""
    """The provider of its model, by its name in the configuration; announced, for records of usage."""
    announce: Callable[[], None] = staticmethod(_announce_nowhere)
    """Set by the processor. Call it when what the service announces has changed, to announce it at once.
    """

    @property
    def loading(self) -> bool:
        """Whether requests wait because the service is still loading what it needs, for instance a model."""
        return False

    @property
    def adapters(self) -> Mapping[str, str]:
        """The LoRA adapters that can be asked for now, and where each is from; announced with its presence."""
        return MappingProxyType({})

    @property
    def adapters_only(self) -> bool:
        """Whether nothing leads to the model alone, so that a request must name an adapter; announced as well."""
        return False

    @property
    def pools(self) -> Mapping[str, LivePool]:
        """The pools of servers that it picks from, by name; announced, for the live view."""
        return MappingProxyType({})

    @abstractmethod
    def on_request(self, request: Req) -> AsyncGenerator[Resp, None]:
        """Yield the responses; the last one has `last` set.

        A service that repeats words:

            async def on_request(self, request: EchoRequest) -> AsyncGenerator[EchoResponse, None]:
                for word in request.text.split():
                    yield EchoResponse(word)
                yield EchoResponse(end_of_stream=True)

        Raises:
            TgError: sent as the stream's last record.
        """

    async def read(self, body: bytes) -> Req:
        """Decode a large request. Override it to do so in another process.

        Raises:
            Unreadable: the body is not such a record.
            TgError: the request is refused; sent as the stream's last record.
        """
        return self.decode(body)

    def decode(self, body: bytes) -> Req:
        """Decode a request. Raises Unreadable if the body is not such a record."""
        try:
            record: Req = decode(self.spec.request, body)
        except BadRequest as error:
            raise Unreadable(error.message) from None
        return record

    async def aclose(self) -> None:
        """Close the service's clients and models. Called once, after its last request."""
