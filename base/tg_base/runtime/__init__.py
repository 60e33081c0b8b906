"""Lowest layer: tasks that live as long as their owner, and new ids."""

from tg_base.runtime.ids import last_number, new_id, new_number
from tg_base.runtime.tasks import report, running

__all__ = [
    "last_number",
    "new_id",
    "new_number",
    "report",
    "running",
]
