"""The pools of a picker as a board sees them, without anything that follows them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from tg_picker.core import Endpoint, QueueLimits, Scheduler
from tg_picker.picking import PoolPicker
from tg_picker.pools import PoolSources, PoolView
from tg_picker.pools.followed_pools import FollowedPools
from tg_picker.pools.pool_watcher import PoolWatcher


@dataclass(frozen=True)
class ShownPool:
    """Pools that stay as they are; unless something else is said, all servers answer."""

    view: PoolView
    failing: dict[str, str] = field(default_factory=dict)
    unreachable: tuple[str, ...] = ()


class PartlyReachable(FollowedPools):
    """Pools that nobody follows; a request goes to these addresses only if there is no other."""

    def __init__(self, scheduler: Scheduler, view: PoolView, unreachable: Collection[str] = ()) -> None:
        self.watcher = PoolWatcher(PoolSources())
        self.watcher.view = view
        super().__init__(self.watcher, scheduler, None)
        self.scheduler = scheduler
        self._avoided = unreachable

    @override
    def find_eligible(self, endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
        return [each for each in endpoints if each.address not in self._avoided] or endpoints


def make_picker(
    pools: PartlyReachable, clock: Callable[[], float], limits: QueueLimits | None = None, adapter_source: str = ""
) -> PoolPicker:
    """A picker that is not entered, and shown nowhere."""
    limits = limits or QueueLimits()
    return PoolPicker("p", "", pools.scheduler, pools, limits=limits, clock=clock, adapter_source=adapter_source)
