"""Who asks: the commands. What they share with `tg-serve` is here."""

from tg_cli.entry import FAILED, Failure, run, say

__all__ = [
    "FAILED",
    "Failure",
    "run",
    "say",
]
