"""Lowest layer: tasks that end with their owner, detached threads, worker processes, sockets, defects."""

from tg_base.runtime.counted import counted
from tg_base.runtime.daemon_thread import start_daemon_thread
from tg_base.runtime.defects import translate_defects
from tg_base.runtime.entered import Entered, Watcher
from tg_base.runtime.entry_points import (
    explaining_absence,
    find_entry_point,
    find_entry_points,
    find_requirement,
    load_function,
    load_object,
)
from tg_base.runtime.file_edits import POLL_SECONDS, FileEdits
from tg_base.runtime.listening_sockets import (
    MAX_WAITING_CONNECTIONS,
    SharedListener,
    explain_no_listening,
    open_listening_sockets,
)
from tg_base.runtime.open_files import TOO_MANY_FILES, descriptors
from tg_base.runtime.reading_cost import MAX_QUICK_BYTES, MAX_READ_HERE_OBJECTS, is_costly
from tg_base.runtime.tasks import LATE_SECONDS, is_set_within, report, running, start_task
from tg_base.runtime.turns import Steps, finish, take_turns
from tg_base.runtime.worker_main import Unpicklable, ask_caller
from tg_base.runtime.worker_pool import WorkerPool
from tg_base.runtime.worker_process import WorkerEnded

__all__ = [
    "LATE_SECONDS", "MAX_QUICK_BYTES", "MAX_READ_HERE_OBJECTS", "MAX_WAITING_CONNECTIONS", "POLL_SECONDS",
    "TOO_MANY_FILES", "Entered", "FileEdits", "SharedListener", "Steps", "Unpicklable", "Watcher", "WorkerEnded",
    "WorkerPool", "ask_caller", "counted", "descriptors", "explain_no_listening", "explaining_absence",
    "find_entry_point", "find_entry_points", "find_requirement", "finish", "is_costly", "is_set_within",
    "load_function", "load_object", "open_listening_sockets", "report", "running", "start_daemon_thread", "start_task",
    "take_turns", "translate_defects",
]  # fmt: skip
