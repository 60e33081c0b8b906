"""Scheduling context -> server: any."""

from tg_picker.core import Choice, SchedulingContext


class RandomPolicy:
    """Any server, each as probable as the others."""

    def choose(self, context: SchedulingContext) -> Choice:
        """Choose by chance."""
        return Choice(context.random.choice(context.servers), ("random",))
