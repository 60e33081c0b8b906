"""A service is an async generator of responses. It never touches the bus."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Generic

from tg_schema import ServiceSpec, decode
from tg_schema.errors import BadRequest
from tg_schema.features import Feature
from tg_schema.service_spec import Req, Resp


class Unreadable(BadRequest):
    """A message of the queue that is no request."""


def _announce_nowhere() -> None:
    """Of a service without a processor."""


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
    announce: Callable[[], None] = staticmethod(_announce_nowhere)
    """Call it when what is announced has changed, so that it is told before the next heartbeat; its processor sets it.
    """

    @property
    def loading(self) -> bool:
        """Whether a request waits for more than its turn: the service has yet to load what it answers with."""
        return False

    @property
    def adapters(self) -> Mapping[str, str]:
        """The LoRA adapters that can be asked for now, and where each is from; announced with its presence."""
        return MappingProxyType({})

    @abstractmethod
    def on_request(self, request: Req) -> AsyncGenerator[Resp, None]:
        """Yield the responses; the last one has `last` set.

        Raises:
            TgError: sent as the stream's last record.
        """

    async def read(self, body: bytes) -> Req:
        """The record of a request that takes long to be read. Override it where another process can do that.

        Raises:
            Unreadable: it is no such record.
            TgError: it is refused already; sent as the stream's last record.
        """
        return self.decode(body)

    def decode(self, body: bytes) -> Req:
        """The record of a request. Raises Unreadable: it is no such record."""
        try:
            record: Req = decode(self.spec.request, body)
        except BadRequest as error:
            raise Unreadable(error.message) from None
        return record

    async def aclose(self) -> None:
        """Close the service's clients and models. Called once, after its last request."""
