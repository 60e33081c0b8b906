"""Configuration -> scheduler: the policies by name."""

from collections.abc import Callable

from tg_base.instances.filter_tree import FilterTree, first_filter_tree
from tg_base.instances.least_request import LeastRequest
from tg_base.instances.lora_residency import LoraResidency
from tg_base.instances.policy import Policy
from tg_base.instances.predicted_wait import PredictedWait
from tg_base.instances.random_policy import RandomPolicy
from tg_base.instances.round_robin import RoundRobin
from tg_base.instances.seed_policy import SeedPolicy
from tg_base.instances.sticky import StickyUntilSaturated
from tg_base.instances.weighted import Weighted, weighted_with_lora

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
