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
        """Whether the transport has ended, so that no further request can be sent."""

    def stream(
        self, flow: str | None, spec: ServiceSpec[Req, Resp], request: Req, clock: Deadline, position: Position
    ) -> AbstractAsyncContextManager[AsyncIterator[Resp]]:
        """Enter to send, iterate to read, leave at any time to stop the work. With `flow` None, the gateway chooses it.

        Leaving does not stop a kept stream, which is one whose `position.goes_on` is true.

        Raises:
            TgError: on entering or while iterating; nothing follows it.
        """
