"""Door -> board: one request from its pick to its end, for the page and for the metrics."""

from collections.abc import Callable
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from tg_picker.core import Endpoint, Fingerprint, InstanceRequest, InstanceUsage, Pick, Rejection
from tg_picker.pools import Destination


class RequestFacts(Struct, frozen=True):
    """The facts about a request for which a server was picked, or which was refused.

    Attributes:
        request: the request's id; "" = none.
        model: the model as the client named it.
        destination: where the catalogue sent it; None = nothing is known about its model.
        body_bytes: bytes of its body.
        eligible: the number of servers that it could go to.
        unreachable: the number of servers of its pool that were left out as unreachable.
    """

    request: str = ""
    model: str = ""
    destination: Destination | None = None
    body_bytes: int = 0
    eligible: int = 0
    unreachable: int = 0


_NO_PREFIX = Fingerprint()
MIN_ERROR_STATUS = 400
ANSWERED, LEFT, REFUSED, LOST = "answered", "ended early", "refused", "another server was faster"


class RequestRecord(Struct, eq=False):
    """The record of one request. Its methods may be called in any order and repeatedly: each counts once.

    Attributes:
        facts: what the door knows about the request.
        request: the request that the scheduler got, without the prefix.
        picked_at: when it was picked, on the board's clock.
        first_at: when the answer began; None = not yet, or it comes whole.
        ended_at: when it ended; None = not yet.
        endpoint: the server that was picked; None = none.
        server: the name of the server that answers; "" = none.
        reasons: the policy's reasons, or the reason of a refusal.
        cached_tokens: tokens of the prompt that the server probably has in its cache.
        loads: whether the server has to load the adapter first.
        moved: whether another server than the picked one answers.
        status: the HTTP status; 0 = not known yet.
        outcome: how it ended; "" = not yet.
        failed: whether it ended with an error.
        usage: the server's token counts.
        began: whether a part of the answer arrived.
        pick_seconds: how long the decision took.
        waited: seconds from the request to the decision; None = an earlier attempt was recorded.
        counted_as: the labels of its model, under which both its beginning and its end are counted.
        on_end: called at the end of a request for which a server was picked; None = nobody.
    """

    facts: RequestFacts
    request: InstanceRequest
    picked_at: float
    reasons: tuple[str, ...]
    endpoint: Endpoint | None = None
    server: str = ""
    cached_tokens: int = 0
    loads: bool = False
    pick_seconds: float = 0.0
    waited: float | None = None
    counted_as: tuple[str, str] = ("", "")
    on_end: "Callable[[RequestRecord], None] | None" = None
    first_at: float | None = None
    ended_at: float | None = None
    usage: InstanceUsage | None = None
    status: int = 0
    outcome: str = ""
    began: bool = False
    moved: bool = False
    failed: bool = False

    @classmethod
    def make(cls, facts: RequestFacts, request: InstanceRequest, made: Pick | Rejection, now: float) -> Self:
        """Create the record of a decision."""
        # Drop the fingerprint, because that of a long prompt has thousands of blocks.
        request = replace(request, prefix=_NO_PREFIX)
        if isinstance(made, Rejection):
            reasons, status = (made.reason,), made.status
            return cls(facts, request, now, reasons, status=status, outcome=REFUSED, ended_at=now, failed=True)
        endpoint, placement = made.endpoint, made.placement
        cached = request.prompt_tokens - placement.uncached_tokens
        server = endpoint.name or endpoint.address
        return cls(facts, request, now, made.reasons, endpoint, server, cached, placement.loads_adapter)

    @property
    def first_token_seconds(self) -> float | None:
        """Seconds from the pick to the first token, to the microsecond; None = there was none yet."""
        return None if self.first_at is None else round(self.first_at - self.picked_at, 6)

    @property
    def seconds(self) -> float | None:
        """Seconds from the pick to the end, to the microsecond; None = it has not ended."""
        return None if self.ended_at is None else round(self.ended_at - self.picked_at, 6)

    @property
    def output_token_seconds(self) -> float | None:
        """Average seconds from one token to the next; None = not known."""
        tokens = None if self.usage is None else self.usage.output_tokens
        if not tokens or tokens < 2 or self.first_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.first_at) / (tokens - 1)

    def move(self, server: str) -> None:
        """Note that another server than the picked one answers."""
        self.server, self.moved = server, True

    def respond(self, status: int) -> None:
        """Note the status of the answer."""
        self.status = status

    def first_token(self, now: float) -> None:
        """Note that the answer began. The first piece of an answer that comes whole is not its first token."""
        if self.first_at is None and self.ended_at is None:
            self.began = True
            self.first_at = now if self.request.streamed else None

    def end(self, usage: InstanceUsage | None, now: float, outcome: str = "") -> None:
        """Note that the request has ended.

        Args:
            usage: the server's token counts; None = it reported none.
            now: on the board's clock.
            outcome: how it ended; "" = derive that from the status, and from whether the answer began.
        """
        if self.ended_at is not None:
            return
        self.ended_at = now
        self.usage = usage
        self.failed = self.failed or self.status >= MIN_ERROR_STATUS
        by_status = f"status {self.status}" if self.failed else ANSWERED if self.began else LEFT
        self.outcome = outcome or by_status
        if self.on_end is not None:
            self.on_end(self)

    def lose(self, now: float) -> None:
        """Note that it ended because another attempt at the same request was faster. It may have ended already."""
        outcome = "" if self.failed else LOST
        self.end(None, now, outcome)
        self.outcome = outcome or self.outcome

    def fail(self, kind: str, status: int, now: float) -> None:
        """Note that the request ended with an error of this kind and status."""
        if self.ended_at is None:
            self.failed, self.status = True, status
            self.end(None, now, kind)
