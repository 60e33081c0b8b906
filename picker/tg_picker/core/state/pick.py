"""Scheduler -> door or pool provider: where a request goes, or why it is refused."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from tg_picker.core.interface import Endpoint
from tg_picker.core.state.placement import Placement
from tg_picker.core.state.server_state import ServerState

MAX_FALLBACKS = 2
"""Servers named beside the picked one."""

RejectionReason = Literal[
    "no-endpoints", "model-not-found", "saturated", "objective-out-of-reach", "queue-full", "displaced", "expired"
]
"""Why no endpoint was picked: there is none, none has the model, all are full, none can be in time, the queue is full,
the request was evicted from the queue, or it waited too long."""


class Pick(Struct, frozen=True):
    """Where a request goes.

    Attributes:
        endpoint: the server.
        others: the next best; the picked one may be among them.
        reasons: why this server, for logs and pages.
        placement: report the first token and the end to it.
    """

    endpoint: Endpoint
    others: Sequence[ServerState]
    reasons: tuple[str, ...]
    placement: Placement

    @property
    def fallbacks(self) -> tuple[Endpoint, ...]:
        """Where to go if it cannot be reached, best first; at most MAX_FALLBACKS."""
        # Computed on demand: not every caller needs them.
        picked = self.endpoint.address
        return tuple([each.endpoint for each in self.others if each.endpoint.address != picked][:MAX_FALLBACKS])


class Rejection(Struct, frozen=True):
    """Why a request is refused.

    Attributes:
        reason: for metrics and for the client.
        status: 404 (no such model), 429 (all full) or 503 (nobody there).
        retry_after: seconds after which to try again; None for 404.
    """

    reason: RejectionReason
    status: Literal[404, 429, 503]
    retry_after: float | None = None
