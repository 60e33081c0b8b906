"""Scheduler -> door or pool provider: the server that a request goes to, or why it is refused."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from tg_picker.core.interface import Endpoint
from tg_picker.core.state.placement import Placement
from tg_picker.core.state.server_state import ServerState

MAX_FALLBACKS = 2
"""Most alternatives that are named with the picked server."""

RejectionReason = Literal[
    "no-endpoints", "model-not-found", "saturated", "objective-out-of-reach", "queue-full", "displaced", "expired"
]
"""Why no endpoint was picked: there is none, none has the model, all are full, none can meet the objective, the queue
is full, the request was evicted from the queue, or it waited too long."""


class Pick(Struct, frozen=True):
    """The server that a request goes to.

    Attributes:
        endpoint: the server.
        others: the next best servers; the picked one may be among them.
        reasons: why this server was picked, for logs and pages.
        placement: the placement, to which the caller reports the first token and the end.
    """

    endpoint: Endpoint
    others: Sequence[ServerState]
    reasons: tuple[str, ...]
    placement: Placement

    @property
    def fallbacks(self) -> tuple[Endpoint, ...]:
        """The servers to try if the picked one cannot be reached, best first; at most MAX_FALLBACKS."""
        # Computed on demand: not every caller needs them.
        picked = self.endpoint.address
        return tuple([each.endpoint for each in self.others if each.endpoint.address != picked][:MAX_FALLBACKS])


class Rejection(Struct, frozen=True):
    """Why a request is refused.

    Attributes:
        reason: the reason, for metrics and for the client.
        status: 404 (no such model), 429 (all servers full) or 503 (no server).
        retry_after: seconds after which to try again; None for 404.
    """

    reason: RejectionReason
    status: Literal[404, 429, 503]
    retry_after: float | None = None
