"""Situation -> server: one after the other."""

from tg_picker.core.policies.policy import Choice, Situation


class RoundRobin:
    """The servers in turn, in the order in which they are handed in."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, situation: Situation) -> Choice:
        """Choose the next one."""
        server = situation.servers[self._turn % len(situation.servers)]
        self._turn += 1
        return Choice(server, ("turn",))
