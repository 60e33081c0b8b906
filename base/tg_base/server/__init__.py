"""Bus -> service -> bus: a `Processor` runs one `Service`; `serve_process` ends a process by signal."""

from tg_base.server.held_loop import end_if_held
from tg_base.server.host import Host
from tg_base.server.own_kinds import add_kinds
from tg_base.server.process import ProcessEvents, serve_process
from tg_base.server.processor import Processor
from tg_base.server.readiness import Readiness
from tg_base.server.service import Service, Unreadable
from tg_base.server.service_edits import EditedProcessors, Opening
from tg_base.server.service_kind import Opened, ServeContext, ServiceKind
from tg_base.server.usage_account import ACCOUNT, UsageAccount
from tg_base.server.worker_server import LEAVING, Work
from tg_base.server.workers import Workers, WorkerSettings

__all__ = [
    "ACCOUNT",
    "LEAVING",
    "EditedProcessors",
    "Host",
    "Opened",
    "Opening",
    "ProcessEvents",
    "Processor",
    "Readiness",
    "ServeContext",
    "Service",
    "ServiceKind",
    "Unreadable",
    "UsageAccount",
    "Work",
    "WorkerSettings",
    "Workers",
    "add_kinds",
    "end_if_held",
    "serve_process",
]
