"""Configuration -> scheduler: the policies by name."""

from operator import attrgetter
from typing import Final, cast

import structlog

from tg_base.runtime import explaining_absence, find_entry_point, load_object, translate_defects
from tg_picker.core.policies.policy import Choice, Policy, SchedulingContext
from tg_schema.errors import BadRequest, Internal, NotFound

log = structlog.get_logger()


class RoundRobin:
    """Picks the servers in turn, in the order in which they are passed in."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, context: SchedulingContext) -> Choice:
        """Choose the next server."""
        server = context.servers[self._turn % len(context.servers)]
        self._turn += 1
        return Choice(server, ("turn",))


requests_of = attrgetter("requests")


class LeastRequest:
    """Picks the server with the fewest requests in flight."""

    def choose(self, context: SchedulingContext) -> Choice:
        """Choose by our own count, so that no metrics of the servers are needed."""
        servers = context.servers
        fewest = min(map(requests_of, servers))
        ties = [server for server in servers if server.requests == fewest]
        return Choice(context.random.choice(ties), (f"requests {fewest}",))


POLICIES: Final = "tokengrid.policies"
"""The entry point group with which packages offer policies, ours included. Calling the entry point makes a policy."""
DEFAULT_POLICY = "predicted-wait"


def load_policy(name: str) -> Policy:
    """Make a policy from the name of an entry point, or from any class as "module:Class".

    Raises:
        BadRequest: no installed package offers it, or it is not a policy. The message lists the installed ones.
        Unavailable: it needs a package that is not installed; the message has the command that installs it.
        Internal: the policy has a defect; the log has its traceback.
    """
    try:
        point = find_entry_point(POLICIES, name, "policy", "module:Class")
    except NotFound as error:
        raise BadRequest(error.message).at("policy") from None
    owner = f'the policy "{name}"'
    with (
        translate_defects(Internal, f"{owner} has a defect; the log says which", "policy.defect", log),
        explaining_absence(owner, point, "policy"),
    ):
        make = load_object(point)
        made = make() if callable(make) else None
    if not hasattr(made, "choose"):
        raise BadRequest(f"the policy {point.value} is no class with a method `choose`").at("policy")
    return cast(Policy, made)
