"""Configuration -> scheduler: the policies by name."""

from collections.abc import Callable

from tg_base.instances.least_request import LeastRequest
from tg_base.instances.policy import Policy
from tg_base.instances.random_policy import RandomPolicy
from tg_base.instances.round_robin import RoundRobin

POLICIES: dict[str, Callable[[], Policy]] = {
    "random": RandomPolicy,
    "round-robin": RoundRobin,
    "least-request": LeastRequest,
}
"""What makes a policy, by its name in the configuration."""
DEFAULT_POLICY = "least-request"
