"""Flow -> gateway: the interface of the transports (HTTP, WebSocket)."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tg_client.transport.deadline import Deadline
from tg_client.transport.position import Position
from tg_schema import ServiceSpec
from tg_schema.service_spec import Req, Resp


class Transport(Protocol):
    """A way to the gateway."""

    @property
    def lost(self) -> bool:
        """Whether it has ended: nothing can be asked any more."""

    def stream(
        self, flow: str | None, spec: ServiceSpec[Req, Resp], request: Req, clock: Deadline, position: Position
    ) -> AbstractAsyncContextManager[AsyncIterator[Resp]]:
        """Enter to ask, iterate to read, leave at any time to stop the work. Without a flow the gateway chooses it.

        Leaving does not stop what is kept if `position.goes_on` then.

        Raises:
            TgError: on entering or while iterating; nothing follows it.
        """
