"""Lowest layer: tasks that live as long as their owner, threads that nobody waits for, defects, ids."""

from tg_base.runtime.daemon_thread import start_daemon_thread
from tg_base.runtime.defects import translate_defects
from tg_base.runtime.ids import last_number, new_id, new_number
from tg_base.runtime.tasks import report, running

__all__ = [
    "last_number",
    "new_id",
    "new_number",
    "report",
    "running",
    "start_daemon_thread",
    "translate_defects",
]
