"""Situation -> server: any."""

from tg_picker.core import Choice, Situation


class RandomPolicy:
    """Any server, each as probable as the others."""

    def choose(self, situation: Situation) -> Choice:
        """Choose by chance."""
        return Choice(situation.random.choice(situation.servers), ("random",))
