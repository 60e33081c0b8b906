"""Names -> policies: those of the picker, and published ones that they are compared with."""

from collections.abc import Callable
from functools import partial

from bench.instances.baselines.filter_tree import FilterTree, first_filter_tree
from bench.instances.baselines.lora_residency import LoraResidency
from bench.instances.baselines.random_policy import RandomPolicy
from bench.instances.baselines.seed_policy import SeedPolicy
from bench.instances.baselines.sticky import StickyUntilSaturated
from bench.instances.baselines.weighted import Weighted, weighted_with_lora
from tg_picker.core import Policy, load_policy

ALL_POLICIES: dict[str, Callable[[], Policy]] = {
    "random": RandomPolicy,
    "seed": SeedPolicy,
    "filter-tree-v0.1": first_filter_tree,
    "filter-tree": FilterTree,
    "weighted": Weighted,
    "weighted-lora": weighted_with_lora,
    "sticky-until-saturated": StickyUntilSaturated,
    "lora-residency": LoraResidency,
    **{name: partial(load_policy, name) for name in ("round-robin", "least-request", "predicted-wait")},
}


def make_policy(policy: str | Policy) -> Policy:
    """A new one of that name; a policy is itself."""
    return ALL_POLICIES[policy]() if isinstance(policy, str) else policy
