"""Engine -> which adapter's streams the next step evaluates: a context has one adapter at a time."""

from collections import Counter

from tg_llama.core import Adapter

TURN_STEPS = 8
"""Steps of one turn at most. To change a context's adapter costs as much as one step of a few streams."""

TURN_SECONDS = 0.1
"""Seconds after which a turn ends with its current step, since all others wait for it."""

Group = Adapter | None
"""The streams of one adapter, or of the base model."""


class AdapterTurns:
    """Groups with streams take turns; the one that has waited longest goes first.

    Among `n` groups, each waits at most `(n - 1) * TURN_STEPS` steps: a group that comes later has waited less.
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
        """Whether any stream is of `group`."""
        return group in self._streams

    def enter(self, group: Group) -> None:
        """A stream begins."""
        self._streams[group] += 1
        self._since.setdefault(group, self._step)

    def leave(self, group: Group) -> None:
        """A stream has ended."""
        self._streams[group] -= 1
        if not self._streams[group]:
            del self._streams[group], self._since[group]

    def choose(self, now: float) -> Group:
        """The group of the next step; there is at least one.

        Args:
            now: monotonic seconds.
        """
        spent = self._step - self._begun_step >= TURN_STEPS or now - self._begun >= TURN_SECONDS
        if self._current not in self._streams or (spent and self.mixed):
            if self._current in self._since:
                self._since[self._current] = self._step
            # Ties go to the group that came first; the group whose turn has ended is last.
            waiting = [group for group in self._since if group is not self._current] or [self._current]
            self._current = min(waiting, key=self._since.__getitem__)
            self._begun_step, self._begun = self._step, now
        self._step += 1
        return self._current
