"""Measured figures -> the table of what they are held to."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Goal(NamedTuple):
    """What one figure is held to: a field of a row by a field of another."""

    text: str
    field: str
    row: str
    by: tuple[str, str]
    most: float


def goal_table(goals: Sequence[Goal], ratios: Iterable[float]) -> list[str]:
    """Lines of Markdown: each goal, what it is, and whether it is met."""
    lines = ["| | goal | is | |", "|---|---|---|---|"]
    for goal, ratio in zip(goals, ratios, strict=True):
        lines.append(f"| {goal.text} | {goal.most:g} | {ratio:.2f} | {'met' if ratio <= goal.most else 'missed'} |")
    return lines
