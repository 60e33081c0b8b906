"""The pools of a picker as a board sees them, without anything that follows them."""

from dataclasses import dataclass, field

from tg_picker.pools import PoolView


@dataclass(frozen=True)
class ShownPool:
    """Pools that stay as they are; unless something else is said, all servers answer."""

    view: PoolView
    failing: dict[str, str] = field(default_factory=dict)
    unreachable: tuple[str, ...] = ()
