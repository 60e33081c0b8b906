"""Engine -> the adapter whose streams the next step evaluates, because a context uses one adapter at a time."""

from collections import Counter

from tg_llama.core import Adapter

TURN_STEPS = 8
"""Most steps of one turn. Changing a context's adapter costs as much as one step of a few streams."""

TURN_SECONDS = 0.1
"""Seconds after which a turn ends with its current step, because all other groups wait for its end."""

Group = Adapter | None
"""The streams of one adapter (None: of the base model)."""


class AdapterTurns:
    """Groups with streams take turns; the one that has waited longest goes first.

    Among `n` groups, each waits at most `(n - 1) * TURN_STEPS` steps, because a group that comes later goes later.
    """

    def __init__(self) -> None:
        self._streams: Counter[Group] = Counter()
        self._since: dict[Group, int] = {}
        self._current: Group = None
        self._step = self._begun_step = 0
        self._begun = 0.0

    @property
    def mixed(self) -> bool:
        """Whether there is more than one group."""
        return len(self._streams) > 1

    def has(self, group: Group) -> bool:
        """Whether `group` has any stream."""
        return group in self._streams

    def enter(self, group: Group) -> None:
        """Note that a stream of `group` begins."""
        self._streams[group] += 1
        self._since.setdefault(group, self._step)

    def leave(self, group: Group) -> None:
        """Note that a stream of `group` has ended."""
        self._streams[group] -= 1
        if not self._streams[group]:
            del self._streams[group], self._since[group]

    def choose(self, now: float) -> Group:
        """The group of the next step. There must be at least one.

        Args:
            now: monotonic seconds.
        """
        spent = self._step - self._begun_step >= TURN_STEPS or now - self._begun >= TURN_SECONDS
        if self._current not in self._streams or (spent and self.mixed):
            if self._current in self._since:
                self._since[self._current] = self._step
            # Of groups that waited equally long, the first one goes first; the group whose turn has ended goes last.
            waiting = [group for group in self._since if group is not self._current] or [self._current]
            self._current = min(waiting, key=self._since.__getitem__)
            self._begun_step, self._begun = self._step, now
        self._step += 1
        return self._current
