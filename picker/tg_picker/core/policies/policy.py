"""Scheduler -> policy: the rule by which one of many servers is chosen."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple, Protocol

from msgspec import Struct

from tg_picker.core.interface import InstanceRequest
from tg_picker.core.state import RejectionReason, ServerState


class SchedulingContext(Struct, frozen=True, eq=False):
    """What a policy decides on. The same context and the same state of `random` give the same decision.

    Attributes:
        request: what is to be placed.
        servers: the eligible ones, at least one.
        expected_tokens: tokens of the answer.
        now: seconds on the scheduler's clock.
        random: for ties.
    """

    request: InstanceRequest
    servers: Sequence[ServerState]
    expected_tokens: int
    now: float
    random: Random


class Choice(NamedTuple):
    """The server that a policy chose and why.

    If the policy knows them, also the next best and the figures behind the choice.

    `matched` are the prompt's blocks that the server has; None = to be looked up.
    """

    server: ServerState
    reasons: tuple[str, ...]
    others: Sequence[ServerState] = ()
    matched: int | None = None


class Refusal(NamedTuple):
    """The policy chose no server: refuse the request."""

    reason: RejectionReason
    retry_after: float = 1.0


class Policy(Protocol):
    """A rule. Its own state, if any, is small, and depends only on the contexts that it was given."""

    def choose(self, context: SchedulingContext) -> Choice | Refusal:
        """Choose a server, or refuse.

        A policy that takes the shortest line:

            best = min(context.servers, key=lambda server: server.requests)
            return Choice(best, (f"requests {best.requests}",))
        """
