"""Scheduler -> policy: the rule by which one of many servers is chosen."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple, Protocol

from msgspec import Struct

from tg_picker.core.interface import InstanceRequest
from tg_picker.core.state import RejectionReason, ServerState


class SchedulingContext(Struct, frozen=True, eq=False):
    """The facts by which a policy decides. The same context and the same state of `random` give the same decision.

    Attributes:
        request: the request to place.
        servers: the eligible servers, at least one.
        expected_tokens: expected tokens of the answer.
        now: seconds on the scheduler's clock.
        random: for ties.
    """

    request: InstanceRequest
    servers: Sequence[ServerState]
    expected_tokens: int
    now: float
    random: Random


class Choice(NamedTuple):
    """The server that a policy chose, and why.

    `others` are the next best servers, if the policy knows them.

    `matched` is the number of the prompt's blocks that the server has; None = it must be looked up.
    """

    server: ServerState
    reasons: tuple[str, ...]
    others: Sequence[ServerState] = ()
    matched: int | None = None


class Refusal(NamedTuple):
    """The policy chose no server, so the request is refused."""

    reason: RejectionReason
    retry_after: float = 1.0


class Policy(Protocol):
    """A policy. Its own state, if any, is small, and depends only on the contexts that it was given."""

    def choose(self, context: SchedulingContext) -> Choice | Refusal:
        """Choose a server, or refuse the request.

        Example of a policy that takes the shortest queue:

            best = min(context.servers, key=lambda server: server.requests)
            return Choice(best, (f"requests {best.requests}",))
        """
