"""A service is an async generator of responses; everything about the bus is somebody else's business."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import ClassVar, Generic

from tg_schema import ServiceSpec
from tg_schema.features import Feature
from tg_schema.service_spec import Req, Resp


class Service(ABC, Generic[Req, Resp]):
    """Answers requests of one kind. `Processor` runs it: one call of `on_request` for each request, side by side.

    Leaving the generator early (the requestor left, the process drains) raises `CancelledError` or `GeneratorExit`
    inside it; a service enters what it uses with `async with` and needs no other code for cancellation.
    """

    spec: ClassVar[ServiceSpec]  # type: ignore[type-arg]
    capacity: int = 256
    """How many requests are worked on side by side; more wait in the bus, for whoever is idle."""
    features: frozenset[Feature] = frozenset()
    """What it can do beyond the least; announced with its presence."""

    @abstractmethod
    def on_request(self, request: Req) -> AsyncGenerator[Resp, None]:
        """Yield the responses; the last one has `last` set.

        Raises:
            TgError: becomes the stream's last record.
        """

    async def aclose(self) -> None:
        """Let go of what the service holds (clients, models). Called once, after its last request."""
