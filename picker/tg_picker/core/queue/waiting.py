"""Door or pool provider -> request queue: one request that is placed, refused, or waits."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from tg_picker.core.interface import Endpoint, InstanceRequest
from tg_picker.core.state import Pick, Rejection

MAX_FLOW_CHARACTERS = 256
"""Characters of a flow's name that count; longer names are cut."""

Lane = frozenset[str]
"""The addresses that a request may go to. Requests of other lanes do not wait behind it."""


class Waiting(Struct, eq=False):
    """A request on its way to a server.

    Attributes:
        request: what is to be placed.
        endpoints: the eligible ones at the moment of the call.
        arrived_at: on the scheduler's clock.
        due: when it should begin; the earliest goes first.
        expires_at: until when it waits.
        size: bytes that are held while it waits.
        cost: tokens that its flow pays.
        lane: set when it begins to wait.
        made: the decision; None = it waits.
        on_made: is called once with the decision, unless it was made in `submit`.
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
        """Whether it goes behind others of its flow once it would begin late. It does so once."""
        return self.due < self.expires_at

    @property
    def priority(self) -> int:
        """The request's band."""
        return self.request.priority

    @property
    def flow(self) -> str:
        """The flow that it counts for: the first characters of a name that the client chose.

        It is kept after the request left.
        """
        return self.request.flow[:MAX_FLOW_CHARACTERS]
