"""Seconds that a test sets: a clock for what asks one."""


class SetClock:
    """Attributes:
    now: what it shows.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
