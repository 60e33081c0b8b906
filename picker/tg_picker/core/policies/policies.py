"""Configuration -> scheduler: the policies by name."""

from collections.abc import Callable

from tg_picker.core.policies.least_request import LeastRequest
from tg_picker.core.policies.policy import Policy
from tg_picker.core.policies.predicted_wait import PredictedWait
from tg_picker.core.policies.round_robin import RoundRobin

POLICIES: dict[str, Callable[[], Policy]] = {
    "round-robin": RoundRobin,
    "least-request": LeastRequest,
    "predicted-wait": PredictedWait,
}
"""What makes a policy, by its name in the configuration."""
DEFAULT_POLICY = "predicted-wait"
