"""Door -> board: what a door knows of a request beside what the scheduler is told. Never a prompt, a key or a user."""

from msgspec import Struct

from tg_picker.pools import Destination


class RequestFacts(Struct, frozen=True):
    """A request that was picked a server for, or refused.

    Attributes:
        request: its id; "" = none.
        model: as the client named it.
        destination: where the catalogue sent it; None = nothing is known of its model.
        body_bytes: of its body.
        eligible: servers that it could go to.
        unreachable: servers of its pool that were left out, since nobody can reach them.
    """

    request: str = ""
    model: str = ""
    destination: Destination | None = None
    body_bytes: int = 0
    eligible: int = 0
    unreachable: int = 0
