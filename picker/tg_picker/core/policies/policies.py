"""Configuration -> scheduler: the policies by name."""

from collections.abc import Callable

from tg_picker.core.policies.filter_tree import FilterTree, first_filter_tree
from tg_picker.core.policies.least_request import LeastRequest
from tg_picker.core.policies.lora_residency import LoraResidency
from tg_picker.core.policies.policy import Policy
from tg_picker.core.policies.predicted_wait import PredictedWait
from tg_picker.core.policies.random_policy import RandomPolicy
from tg_picker.core.policies.round_robin import RoundRobin
from tg_picker.core.policies.seed_policy import SeedPolicy
from tg_picker.core.policies.sticky import StickyUntilSaturated
from tg_picker.core.policies.weighted import Weighted, weighted_with_lora

POLICIES: dict[str, Callable[[], Policy]] = {
    "random": RandomPolicy,
    "round-robin": RoundRobin,
    "least-request": LeastRequest,
    "seed": SeedPolicy,
    "filter-tree-v0.1": first_filter_tree,
    "filter-tree": FilterTree,
    "weighted": Weighted,
    "weighted-lora": weighted_with_lora,
    "sticky-until-saturated": StickyUntilSaturated,
    "lora-residency": LoraResidency,
    "predicted-wait": PredictedWait,
}
"""What makes a policy, by its name in the configuration."""
DEFAULT_POLICY = "predicted-wait"
