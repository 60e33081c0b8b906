"""Processor -> plain peer: the error for a request whose id was used by one that has just ended."""

import asyncio
from typing import Any, Final

from tg_base.bus import Bus
from tg_base.protocol import Route
from tg_base.runtime import report
from tg_base.server.responder import PlainResponder, send_failure
from tg_schema.errors import BadRequest

MAX_TOLD_AT_ONCE: Final = 64
"""How many plain peers get the error concurrently; any more get none."""
_REUSED: Final = BadRequest("a request with this id has just ended; give each request an id of its own").record


class ReusedIds:
    """Sends each error in a task of its own, so that a full topic does not delay the work queue.

    Args:
        bus: carries the errors.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._telling: set[asyncio.Task[None]] = set()

    def tell(self, route: Route[Any, Any], stream: str) -> None:
        """Send the error that ends a stream, on the flow's response topic."""
        if len(self._telling) < MAX_TOLD_AT_ONCE:
            responder = PlainResponder(self._bus, route.response, stream)
            task = asyncio.create_task(send_failure(responder, route.spec.response.from_error(_REUSED)), name="reused")
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)
            task.add_done_callback(report)

    def close(self) -> None:
        """Stop sending errors."""
        for task in self._telling:
            task.cancel()
