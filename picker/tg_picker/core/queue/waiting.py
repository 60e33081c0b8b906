"""Door or pool provider -> request queue: one request that is placed, refused, or waits."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from tg_picker.core.interface import Endpoint, InstanceRequest
from tg_picker.core.state import Pick, Rejection

MAX_FLOW_CHARACTERS = 256
"""Characters of a flow's name that count; longer names are truncated."""

Lane = frozenset[str]
"""The addresses of the servers that a request may go to. Requests of different lanes do not wait for each other."""


class Waiting(Struct, eq=False):
    """A request on its way to a server.

    Attributes:
        request: the request to place.
        endpoints: returns the servers that are eligible at the moment of the call.
        arrived_at: when it arrived, on the scheduler's clock.
        due: when it should begin; within a flow, the earliest one goes first.
        expires_at: when it stops waiting.
        size: bytes that are held while it waits.
        cost: tokens that its flow is charged.
        lane: its lane; set when it begins to wait.
        made: the decision; None = it waits.
        on_made: called once with the decision, unless `submit` made it at once.
    """

    request: InstanceRequest
    endpoints: Callable[[], Sequence[Endpoint]]
    arrived_at: float
    due: float
    expires_at: float
    size: int = 0
    cost: int = 1
    lane: Lane = frozenset()
    made: Pick | Rejection | None = None
    on_made: Callable[[Pick | Rejection], None] | None = None

    @property
    def yields(self) -> bool:
        """Whether other requests of its flow may overtake it once it would begin late. That happens only once."""
        return self.due < self.expires_at

    @property
    def priority(self) -> int:
        """The request's priority, which is its band."""
        return self.request.priority

    @property
    def flow(self) -> str:
        """The flow on whose account it counts: the first characters of a name that the client chose.

        The name is kept after the request has left.
        """
        return self.request.flow[:MAX_FLOW_CHARACTERS]
