"""Shell -> gateway: the commands. What they share with `tg-serve` is here."""

from tg_cli.entry import EXIT_FAILED, Failure, notify, run, version_option

__all__ = [
    "EXIT_FAILED",
    "Failure",
    "notify",
    "run",
    "version_option",
]
